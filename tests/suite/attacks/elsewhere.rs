//! The attacks that are not a command's: on the host, between two steps, on the engine. Each is tried by a test of its
//! own, named here by its file.

/// One attack and the test that tries it.
pub(super) struct Elsewhere {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) file: &'static str,
    pub(super) test: &'static str,
}

const fn row(
    id: &'static str,
    what: &'static str,
    file: &'static str,
    test: &'static str,
) -> Elsewhere {
    Elsewhere { id, what, file, test }
}

pub(super) const ELSEWHERE: &[Elsewhere] = &[
    row(
        "A1",
        "a directory is swapped between its check and its mount",
        "sandbox-svc/src/tests/mounts.rs",
        "a_directory_that_is_swapped_between_check_and_start_is_refused_and_nothing_runs",
    ),
    row(
        "A1",
        "its name goes to another directory after the start",
        "sandbox-svc/src/tests/mounts.rs",
        "a_directory_whose_name_goes_to_another_after_the_start_stays_the_one_that_was_checked",
    ),
    row(
        "A2",
        "entries change places while a tree is read",
        "sandbox-svc/src/tree/scan/tests.rs",
        "copies_of_a_tree_whose_entries_trade_places_hold_nothing_from_outside",
    ),
    row(
        "A2",
        "a directory becomes a link while it is read by a tool",
        "sandbox-svc/src/tests/reads.rs",
        "a_directory_swapped_for_a_link_while_it_is_read_shows_nothing_of_the_host",
    ),
    row(
        "A5, A7",
        "a pipe and a sparse tebibyte in the host's tree",
        "sandbox-svc/src/tree/scan/tests.rs",
        "neither_a_fifo_nor_a_sparse_file_of_a_tebibyte_takes_time",
    ),
    row(
        "A9",
        "names of any bytes, from the host to the patch",
        "sandbox-svc/src/tree/scan/tests.rs",
        "odd_names_arrive_byte_for_byte",
    ),
    row(
        "A10",
        "a patch that writes what runs later, and git's files",
        "sandbox-svc/src/tests/boundary.rs",
        "what_runs_later_is_asked_for_once_and_git_is_never_written",
    ),
    row(
        "A10, C1",
        "programs that a repository configures",
        "sandbox-svc/src/tests/canary.rs",
        "programs_that_a_repository_configures_never_run_on_the_host",
    ),
    row(
        "A11",
        "names that climb, in the archive of an image",
        "sandbox-svc/src/program/index.rs",
        "names_that_climb_or_are_no_text_are_left_out",
    ),
    row(
        "A18",
        "every refused system call and socket family",
        "sandbox-svc/src/tests/lockdown.rs",
        "the_kernel_refuses_whatever_a_command_has_no_use_for",
    ),
    row(
        "A21",
        "escapes in what a person reads",
        "cli/src/escape.rs",
        "what_moves_hides_or_reorders_is_written_out",
    ),
    row(
        "A22",
        "the engine dies in mid-run",
        "sandbox-svc/src/tests/engine_dies.rs",
        "an_engine_that_is_killed_in_mid_run_leaves_an_unknown_end_and_nothing_else",
    ),
    row(
        "A22",
        "the engine dies at each step of a command",
        "sandbox-svc/src/tests/engine_dies.rs",
        "at_whichever_step_the_engine_dies_what_is_told_is_what_happened",
    ),
    row(
        "A23",
        "a foreign container has our name",
        "sandbox-svc/src/tests/commands.rs",
        "a_foreign_container_of_the_same_name_is_never_touched",
    ),
    row(
        "C6",
        "declarations wider than a task may have",
        "sandbox-svc/src/tests/boundary.rs",
        "a_declaration_that_is_too_wide_is_refused_before_the_engine_is_asked",
    ),
    row(
        "C7",
        "the services' ports, by every name and address of the host",
        "tests/suite/network.rs",
        "no_name_and_no_address_of_the_host_leads_to_a_service",
    ),
    row(
        "C8",
        "hosts that are not listed, in every spelling",
        "sandbox-svc/src/tests/network.rs",
        "nothing_but_the_broker_leads_out",
    ),
    row(
        "D6",
        "the disk is full at each file of an import, and a kill at each step",
        "tests/suite/imports.rs",
        "a_full_disk_at_any_file_leaves_all_or_nothing",
    ),
    row(
        "F2",
        "sandbox-svc is killed at each step of a command",
        "tests/suite/imports.rs",
        "sandbox_svc_killed_at_every_step_of_a_command_leaves_nothing_and_repeats_nothing",
    ),
];
