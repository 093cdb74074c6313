"""The public reports: which are tested by name, which elsewhere, and what is still owed to whom."""

from __future__ import annotations

SECTIONS = {
    "empty key sets": ("B01", "B02", "B04"),
    "lse and merging": ("B05", "B06", "B08", "B10"),
    "masks": ("B11", "B13", "B15", "B16"),
    "numbers": ("B19", "B20", "B22"),
    "shapes and tiles": ("B23", "B25", "B26"),
    "paged caches": ("B28", "B30"),
    "layouts": ("B32", "B33", "B35", "B36"),
    "splits": ("B38", "B40"),
    "launching": ("B42", "B43", "B44", "B46"),
    "tuning and compiling": ("B47", "B49", "B50", "B51"),
    "generated code and messages": ("B52", "B54", "B55", "B56"),
}
ROWS = tuple(row for section in SECTIONS.values() for row in section)

# Tests of the generator and the command line that hold a row, by file under tests/.
ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "B51": {
        "gen/test_package.py": (
            "test_import_loads_neither_torch_nor_triton_nor_numpy",
            "test_build_and_check_without_torch_triton_and_numpy",
            "test_a_missing_package_is_one_line",
        ),
        "gen/test_cli.py": ("test_verify_without_a_gpu_says_so",),
    },
    "B52": {
        "gen/test_builds.py": (
            "test_eight_builds_into_one_folder_while_a_ninth_imports",
            "test_a_read_only_folder",
            "test_a_full_disk_leaves_nothing_behind",
        )
    },
    "B54": {"gen/test_builds.py": ("test_the_same_bytes_whatever_the_process",)},
    "B55": {
        "gen/test_names.py": ("test_each_rule_names_the_field_the_value_and_what_is_allowed",),
        "gen/test_cli.py": ("test_wrong_usage_is_one_line_and_exit_2",),
        "mutants/test_mutants.py": ("test_a_right_kernel_passes",),
    },
}

# What a row asks of features that do not exist yet: (issue, what). An issue is not done before
# its rows are tested; whoever tests one takes it out here.
OWED: dict[str, list[tuple[int, str]]] = {}

# What a CPU cannot show of features that exist: tests that are marked gpu and named by the row, in
# kernels/test_gpu.py and beside this file.
GPU_ONLY = {
    "B08": "a race between warps, in 100 repeats",
    "B22": "the value itself: the interpreter ignores the precision",
    "B35": "pointers 2 bytes off alignment",
    "B42": "65544 heads and 70000 tokens, really launched",
    "B44": "tensors on a GPU that is not the current one",
    "B46": "one call under torch.compile(fullgraph=True)",
    "B50": "the number of kernels that are compiled over many lengths",
}
