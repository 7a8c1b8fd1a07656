import torch

from vitrine.shift.position import circular_distance, fold, linear_distance


def test_the_linear_distance_of_figure_3_changes_under_a_shift():
    p = torch.arange(4)
    distance = linear_distance(p, p, 4) - 3
    assert distance[0].tolist() == [0, -1, -2, -3]  # Fig. 3b
    shifted = p.roll(1)
    assert not torch.equal(linear_distance(shifted, shifted, 4) - 3, distance)


def test_the_circular_distance_of_figure_3_does_not():
    p = torch.arange(4)
    distance = circular_distance(p, p, 4)
    assert distance.tolist() == [[0, 3, 2, 1], [1, 0, 3, 2], [2, 1, 0, 3], [3, 2, 1, 0]]  # Fig. 3c
    for shift in range(4):
        shifted = (p + shift) % 4
        assert torch.equal(circular_distance(shifted, shifted, 4), distance)


def test_a_folded_table_keeps_the_nearest_distance():
    table = torch.arange(-3.0, 4.0)[:, None]  # the embedding of distance d is d
    assert fold(table, 4).flatten().tolist() == [0, 1, 0, -1]  # of 2 and -2 the mean
    odd = torch.arange(-4.0, 5.0)[:, None]
    assert fold(odd, 5).flatten().tolist() == [0, 1, 2, -2, -1]
