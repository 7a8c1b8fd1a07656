"""The partition file of the SLURM profile."""

import pytest
from snakemake_executor_plugin_slurm.partitions import Partition, PartitionLimits

from replication.cluster.partition_file import (
    PARTITIONS,
    Limits,
    different_from,
    longest,
    read_partitions,
    suitable,
)
from replication.config.settings import Resources
from vitrail.errors import VitrailError


@pytest.fixture
def file(tmp_path):
    return tmp_path / "partitions.yaml"


def test_the_profiles_own_file_is_right(root):
    assert read_partitions(root / PARTITIONS) == [
        Partition("cpu", PartitionLimits()),
        Partition("gpu", PartitionLimits(max_gpu=8)),
    ]


def test_a_cluster_has_the_names_that_the_executor_takes(file):
    for name in ("cluster", "clusters", "slurm_cluster"):
        file.write_text(f"partitions:\n  gpu: {{{name}: here}}\n")
        assert read_partitions(file) == [Partition("gpu", PartitionLimits(), "here")]


def test_limits_are_those_that_the_executor_knows():
    known = {*PartitionLimits.__dataclass_fields__}
    assert {*Limits.model_fields} == known | {"cluster"}


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        ("90", 90),
        ("12:00:00", 720),
        ("'12:00:00'", 720),
        ("2-00:00:00", 2880),
        ("0:30:00", 30),
        (".inf", float("inf")),
    ],
)
def test_a_time_is_read_as_slurm_writes_it(file, written, minutes):
    """To YAML 1.1 12:00:00 is the number 43200."""
    file.write_text(f"partitions:\n  gpu: {{max_runtime: {written}}}\n")
    (partition,) = read_partitions(file)
    assert partition.limits.max_runtime == minutes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'partitions' is missing"),
        ("partitions:\n", "name at least one partition"),
        ("partitions: {}\n", "name at least one partition"),
        ("partitions:\n  cpu:\n", "without any: 'cpu: {}'"),
        ("partitions:\n\tcpu: {}\n", "is not valid YAML"),
        (
            "partitions:\n  gpu: {max_gpus: 8}\n",
            ":2: unknown key 'partitions.gpu.max_gpus'; did you",
        ),
        ("partitions:\n  gpu: {max_gpu: eight}\n", ":2: 'partitions.gpu.max_gpu' is 'eight'"),
        ("partitions:\n  gpu: {max_runtime: two days}\n", "'two days': write minutes"),
        ("partitions:\n  gpu: {max_mem_mb: 64G}\n", "'64G': write MB"),
        *(
            (f"partitions:\n  gpu: {{max_runtime: {wrong}}}\n", "write minutes")
            for wrong in ("0", "30:00", ".nan", "true", "-.inf", "99999999")
        ),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_write(file, text, sentence):
    file.write_text(text)
    with pytest.raises(VitrailError) as error:
        read_partitions(file)
    assert str(file) in str(error.value)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("gpus", "minutes"), [(0, 30), (4, 600), (8, 60), (16, float("inf"))])
def test_the_longest_is_of_the_partitions_that_have_the_gpus(gpus, minutes):
    partitions = [
        Partition("cpu", PartitionLimits(max_runtime=30)),
        Partition("long", PartitionLimits(max_runtime=600, max_gpu=4)),
        Partition("short", PartitionLimits(max_runtime=60, max_gpu=8)),
    ]
    assert longest(partitions, Resources(gpus=gpus)) == minutes
    assert longest(partitions[1:], Resources()) == 600


@pytest.mark.parametrize(
    "asked",
    [{"gpus": 5}, {"mem_mb": 100_001}, {"threads": 17}, {"nodes": 3}, {"gpus": 5, "nodes": 2}],
)
def test_a_partition_is_suitable_for_a_job_that_asks_for_no_more_than_its_limits(asked):
    limits = PartitionLimits(
        max_gpu=4, max_mem_mb=100_000, max_threads=16, max_nodes=2, max_runtime=60
    )
    partitions = [Partition("gpu", limits, "a cluster of several")]
    most = Resources(gpus=4, mem_mb=100_000, threads=16, nodes=2, runtime=600)
    assert suitable(partitions, most) == partitions
    assert suitable(partitions, Resources(runtime=600)) == partitions
    assert suitable(partitions, most.model_copy(update=asked)) == []


def test_a_time_limit_of_slurm_matters_to_the_jobs_that_suit_its_partition():
    partitions = [
        Partition("cpu", PartitionLimits()),
        Partition("gpu", PartitionLimits(max_gpu=4, max_runtime=120)),
        Partition("far", PartitionLimits(max_gpu=4), "another cluster"),
    ]
    jobs = [Resources(gpus=4, runtime=100), Resources(gpus=8, runtime=600)]

    node = {"max_gpu": 4, "max_threads": 16, "max_mem_mb": 64000}

    def told(**slurm):
        known = {name: {**node, "max_runtime": minutes} for name, minutes in slurm.items()}
        return [*different_from(known, partitions, jobs)]

    assert told() == []  # SLURM does not answer
    assert told(cpu=10, gpu=100) == []
    (sentence,) = told(cpu=10, gpu=99)
    assert "partition gpu" in sentence
    assert "set max_runtime: 99 " in sentence
    (sentence,) = told(gpu=1000)
    assert "a partition cpu in SLURM" in sentence


@pytest.mark.parametrize(
    ("limit", "slurm"), [("max_gpu", 3), ("max_threads", 19), ("max_mem_mb", 99_999)]
)
def test_a_limit_of_slurms_nodes_matters_to_the_jobs_that_suit_their_partition(limit, slurm):
    """A job that the partition file excludes gets no say."""
    jobs = [Resources(gpus=4, threads=20, mem_mb=100_000), Resources(gpus=8, threads=10**3)]
    enough = {"max_runtime": 60, "max_gpu": 4, "max_threads": 20, "max_mem_mb": 100_000}
    partitions = [Partition("gpu", PartitionLimits(max_gpu=4))]
    assert [*different_from({"gpu": enough}, partitions, jobs)] == []
    (sentence,) = different_from({"gpu": {**enough, limit: slurm}}, partitions, jobs)
    assert f"set {limit}: {slurm} there" in sentence
    written = {"max_gpu": 4, limit: slurm}
    partitions = [Partition("gpu", PartitionLimits(**written))]
    assert [*different_from({"gpu": {**enough, limit: slurm}}, partitions, jobs)] == []
