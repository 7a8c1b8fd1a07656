import torch

from vitrine.octic.features import on_planes
from vitrine.octic.group import ELEMENTS, irrep, isotypic, transform
from vitrine.octic.quarters import unfold_quarters


def quarters():
    return torch.randn(6, 2, 3, 3, dtype=torch.float64)


def test_unfolded_planes_turn_as_the_isotypic_matrix_says(element):
    planes = unfold_quarters(quarters())
    assert planes.shape == (8, 2, 6, 6)
    turned = on_planes(isotypic(element), transform(planes, element))
    assert torch.equal(turned, planes)


def test_a_plane_sums_the_images_of_its_quarter_weighed_by_the_irrep():
    free = quarters()
    planes = unfold_quarters(free)
    corner = torch.nn.functional.pad(free, (0, 3, 0, 3))
    for index, name in enumerate(("A1", "A2", "B1", "B2")):
        images = [irrep(name, g)[0, 0] * transform(corner[index], g) for g in ELEMENTS]
        torch.testing.assert_close(planes[index], sum(images))
    for copy in (0, 1):
        images = [irrep("E", g)[0, 0] * transform(corner[4 + copy], g) for g in ELEMENTS]
        torch.testing.assert_close(planes[4 + 2 * copy], sum(images))
