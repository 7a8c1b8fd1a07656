import json

from tools.gpu_inputs import RECIPES, resolved


def test_the_committed_recipes_are_those_of_the_plan():
    assert json.loads(RECIPES.read_text()) == resolved()
