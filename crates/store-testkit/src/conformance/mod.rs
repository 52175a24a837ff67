//! The suite every store must pass. A store's tests say where it lives ([`Home`]) and ask for one test per
//! case:
//!
//! ```ignore
//! tidewheel_store_testkit::conformance_tests!(MyHome::new);
//! ```
//!
//! | module | what of the contract it holds stores to |
//! |---|---|
//! | [`submitting`] | taking jobs in: keys, batches, repeats |
//! | [`ordering`] | orders, refusals, fencing by epoch |
//! | [`repeating`] | orders under idempotency keys |
//! | [`waiting`] | due reads: order, pages, buckets, tenants |
//! | [`spreading`] | tenants that are spread over several shards |
//! | [`reading`] | lookups, lists, counts |
//! | [`planning`] | schedules: creating, naming, deleting, listing them |
//! | [`editing`] | schedules: what an edit does to what waits |
//! | [`firing`] | schedules: claims, what is missed, jobs made by hand |
//! | [`redefining`] | schedules: what jobs ask for when the definition changes |
//! | [`overlaps`] | schedules: runs that overlap |
//! | [`ledgers`] | ledgers and calendars |
//! | [`documents`] | small documents |
//! | [`auditing`] | the audit trail |
//! | [`keeping`] | what survives closing and opening, what is dropped, what is closed |
//! | [`parallel`] | calls side by side |
//! | [`leasing`] | several nodes: who has which shard, and what that allows; asked for apart |
//! | [`random`] | long random runs against the model |

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a case fails by panicking, which is how a test fails"
)]

mod beat;
mod dice;
mod trial;
mod walk;

pub mod auditing;
pub mod documents;
pub mod editing;
pub mod firing;
pub mod keeping;
pub mod leasing;
pub mod ledgers;
pub mod ordering;
pub mod overlaps;
pub mod parallel;
pub mod planning;
pub mod random;
pub mod reading;
pub mod redefining;
pub mod repeating;
pub mod spreading;
pub mod submitting;
pub mod waiting;
pub mod zoning;

use std::sync::Arc;

use async_trait::async_trait;

use tidewheel_store::Store;

/// Where one store lives. Every case gets a fresh one.
#[async_trait]
pub trait Home: Send + Sync {
    /// Opens the store: empty the first time, and later with everything in it that was there when the one
    /// opened before was closed.
    async fn open(&self) -> Arc<dyn Store>;
}

/// Makes one test of every case about [`Leases`](tidewheel_store::Leases), for stores that several nodes can share. As
/// [`conformance_tests`](crate::conformance_tests) otherwise.
#[macro_export]
macro_rules! lease_conformance_tests {
    ($new_home:expr) => {
        $crate::conformance_tests!(@cases $new_home, leasing:
            a_shard_is_held_by_one_node,
            a_lease_that_is_over_is_free,
            claims_go_by_the_lease,
            a_lease_that_is_over_claims_nothing,
            claims_go_by_the_lease_of_the_jobs_own_shard,
            opening_an_epoch_takes_all_shards,
            nodes_come_and_go,
            a_named_lease_is_held_by_one_node,
            news_are_heard,
        );
    };
}

/// Makes one test of every case of the suite. Takes something that, called without arguments, makes a fresh
/// [`conformance::Home`](crate::conformance::Home), and the number of random runs where it is not the usual one. Needs
/// `tokio` with its macros and its threads.
#[macro_export]
macro_rules! conformance_tests {
    ($new_home:expr) => {
        $crate::conformance_tests!($new_home, random_runs: $crate::conformance::random::SEEDS_COUNT);
    };
    ($new_home:expr, random_runs: $seeds_count:expr) => {
        $crate::conformance_tests!(@cases $new_home, submitting:
            jobs_are_taken_in_and_answered_in_order,
            an_empty_batch_is_fine,
            every_field_survives_byte_for_byte,
            a_repeat_under_a_key_gets_the_first_job,
            another_request_under_a_key_conflicts,
            a_key_is_free_again_when_its_time_is_over,
            a_key_used_twice_in_one_batch_behaves_as_in_two_calls,
            keys_belong_to_their_tenant,
            keys_are_compared_whole,
            a_key_outlives_the_end_of_its_job,
            a_conflict_leaves_the_others_when_asked_to,
            a_conflict_takes_the_whole_batch_with_it_when_asked_to,
            a_conflict_within_the_batch_takes_it_all,
            a_batch_sent_again_changes_nothing,
            an_id_may_be_used_by_two_tenants,
            a_job_taken_in_as_skipped_is_finished,
        );
        $crate::conformance_tests!(@cases $new_home, ordering:
            orders_are_answered_one_by_one,
            orders_of_one_batch_see_each_other,
            an_order_for_the_job_of_another_is_not_found,
            a_refused_order_leaves_no_trace,
            an_outcome_reported_again_changes_nothing,
            a_stale_token_is_refused,
            an_older_epoch_is_fenced,
            epochs_rise_over_reopening,
            a_discarded_job_is_gone,
            a_dead_job_is_replayed_with_changes,
            finished_jobs_run_again,
        );
        $crate::conformance_tests!(@cases $new_home, repeating:
            an_order_under_a_key_is_obeyed_once,
            a_refused_order_leaves_its_key_free,
            one_key_is_for_one_request,
            an_edit_under_a_key_is_made_once,
            a_trigger_under_a_key_makes_one_job,
            a_discard_under_a_key_was_done,
        );
        $crate::conformance_tests!(@cases $new_home, waiting:
            due_jobs_come_in_order_page_by_page,
            pages_end_at_their_bytes,
            a_read_ends_at_its_instant_and_tells_what_is_next,
            a_page_can_be_read_on_after_its_jobs_are_claimed,
            only_waiting_jobs_are_due,
            a_moved_job_is_due_at_its_new_time_only,
            a_job_tried_again_is_due_at_its_new_time_only,
            a_job_run_again_is_due_at_its_new_time_only,
            the_edges_of_a_bucket_belong_to_it,
            tenants_of_a_bucket_come_by_name_page_by_page,
            a_tenant_is_named_while_it_has_work,
            the_next_bucket_is_the_oldest_with_work,
            tenants_of_one_shard_do_not_see_each_other,
        );
        $crate::conformance_tests!(@cases $new_home, spreading:
            a_spread_job_is_due_in_its_own_shard,
            jobs_stay_where_they_are_when_the_spread_changes,
            lists_and_counts_cover_all_shards,
            equal_keys_make_one_job_whatever_the_shard,
            a_batch_over_many_shards_is_taken_in_whole,
            a_spread_tenant_survives_reopening,
        );
        $crate::conformance_tests!(@cases $new_home, reading:
            jobs_are_found_in_every_state,
            lookups_are_answered_in_order,
            what_runs_is_listed_and_nothing_else,
            lists_come_latest_first_page_by_page,
            lists_are_filtered,
            a_walk_sees_every_job_once_while_others_change,
            a_rare_match_is_found_behind_many_others,
            counts_follow_every_change,
            counts_are_per_tenant_and_in_all,
        );
        $crate::conformance_tests!(@cases $new_home, planning:
            a_schedule_is_stored_with_its_first_occurrence,
            every_field_of_a_schedule_survives,
            creation_keys_point_at_their_schedule,
            a_key_given_anew_points_at_the_new_schedule,
            a_name_belongs_to_one_schedule,
            a_version_guards_an_edit,
            refused_edits_leave_no_trace,
            a_deleted_schedule_is_gone,
            schedules_are_listed_and_counted,
        );
        $crate::conformance_tests!(@cases $new_home, editing:
            an_edit_keeps_the_job_of_its_instant,
            an_edit_of_the_rule_moves_the_occurrence,
            a_paused_schedule_waits_for_nothing,
            an_update_pauses_and_resumes_or_does_nothing_at_all,
            a_sound_schedule_needs_no_mending,
            an_interval_is_brought_forward_when_the_clock_was_set_back,
            an_edit_and_a_claim_see_each_other,
        );
        $crate::conformance_tests!(@cases $new_home, firing:
            a_claim_stores_the_next_occurrence,
            a_refused_claim_leaves_the_schedule_alone,
            orders_of_one_batch_move_the_chain_step_by_step,
            an_occurrence_is_there_for_the_orders_behind_the_claim_that_stored_it,
            a_herd_is_claimed_in_one_batch,
            missed_instants_are_coalesced,
            a_late_occurrence_says_so,
            missed_instants_are_all_fired,
            missed_instants_are_skipped,
            a_cancelled_occurrence_moves_the_chain_on,
            an_occurrence_can_be_moved,
            a_trigger_fires_outside_the_chain,
            a_backfill_is_stored_outside_the_chain,
            a_schedule_ends_with_its_last_instant,
            a_job_without_its_schedule_is_like_any_other,
        );
        $crate::conformance_tests!(@cases $new_home, redefining:
            an_occurrence_is_found_as_it_was_made,
            pages_of_occurrences_end_at_their_bytes,
            an_edit_leaves_what_runs_alone,
            an_edit_leaves_what_is_due_alone,
            a_late_occurrence_is_kept_as_it_was_started,
            what_runs_outlives_its_schedule,
            edits_of_one_batch_see_each_other,
            a_changed_occurrence_is_kept,
            many_schedules_are_listed,
        );
        $crate::conformance_tests!(@cases $new_home, overlaps:
            overlapping_runs_are_allowed,
            an_overlapping_instant_is_skipped,
            one_overlapping_instant_is_buffered,
            a_buffered_instant_can_be_called_off,
            an_overlapping_instant_ends_the_run_before_it,
        );
        $crate::conformance_tests!(@cases $new_home, ledgers:
            a_ledger_is_read_page_by_page,
            a_long_ledger_is_read_page_by_page,
            old_entries_are_dropped_with_history,
            calendars_are_kept,
            a_changed_calendar_moves_what_waits,
            a_date_that_has_passed_stays_excluded,
        );
        $crate::conformance_tests!(@cases $new_home, zoning:
            the_rules_of_zones_are_noted,
            new_rules_of_a_zone_move_the_occurrence,
            a_time_that_fired_does_not_wait_again,
        );
        $crate::conformance_tests!(@cases $new_home, documents:
            documents_are_kept,
            a_version_guards_a_document,
            documents_are_listed,
        );
        $crate::conformance_tests!(@cases $new_home, auditing:
            acts_are_kept_in_chains,
            every_change_of_a_job_is_recorded,
            what_changes_nothing_is_not_recorded,
            many_changes_make_few_records,
            records_are_read_page_by_page,
            old_records_are_dropped_and_chains_stay_whole,
        );
        $crate::conformance_tests!(@cases $new_home, keeping:
            everything_survives_reopening,
            attempts_under_way_survive_reopening,
            old_history_is_dropped_and_nothing_else,
            a_job_run_again_is_not_history,
            a_key_with_time_left_survives_its_job,
            checkpoints_are_the_last_ones_saved,
            a_closed_store_says_so,
            an_open_store_is_ready_and_keeps_its_layout,
        );
        $crate::conformance_tests!(@parallel_cases $new_home,
            equal_submissions_make_one_job,
            equal_creations_make_one_schedule,
            different_submissions_are_all_kept,
            a_job_is_claimed_once,
            equal_orders_are_obeyed_once,
            one_outcome_is_accepted,
            a_claim_and_a_pause_do_not_both_win,
            one_of_many_gets_a_name,
            one_of_many_makes_a_document,
            chains_do_not_fork,
            a_herd_and_edits_see_each_other,
            what_runs_is_kept_while_its_schedules_change,
        );

        #[tokio::test]
        async fn random_runs_agree_with_the_model() {
            for seed in 0..$seeds_count {
                let home = ($new_home)();
                $crate::conformance::random::a_random_run_agrees_with_the_model(&home, seed).await;
            }
        }
    };
    (@cases $new_home:expr, $group:ident: $($case:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $case() {
                let home = ($new_home)();
                $crate::conformance::$group::$case(&home).await;
            }
        )+
    };
    (@parallel_cases $new_home:expr, $($case:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                let home = ($new_home)();
                let spawn: $crate::conformance::parallel::Spawn = |task| {
                    let task = tokio::spawn(task);
                    Box::pin(async move {
                        if let Err(failed) = task.await {
                            std::panic::resume_unwind(failed.into_panic());
                        }
                    })
                };
                $crate::conformance::parallel::$case(&home, spawn).await;
            }
        )+
    };
}
