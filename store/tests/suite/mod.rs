//! What a store promises, whatever database is under it. Each case gets the address of a fresh database.

pub(crate) mod batches;
pub(crate) mod cases;
pub(crate) mod corpora;
pub(crate) mod key_claims;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod migration;
pub(crate) mod progress;
pub(crate) mod replies;
pub(crate) mod responses;
pub(crate) mod schemas;
pub(crate) mod sql;
pub(crate) mod takes;
pub(crate) mod tickets;
pub(crate) mod uploads;
pub(crate) mod versions;
pub(crate) mod workbooks;

use base::{Millis, TenantId};
use store::{Lease, NewTicket, Store, StoreOptions, TicketRow, UnixMillis, UsageRow, UsageWrite};

/// Names the case functions of this suite, once for both databases.
#[macro_export]
macro_rules! for_each_case {
    ($with:ident) => {
        $with! {
            cases::a_key_is_shown_once_and_found_by_its_hash,
            cases::revoked_expired_and_unknown_keys_are_told_apart,
            cases::revoking_twice_keeps_the_first_date,
            cases::usage_adds_up_and_is_read_by_range,
            cases::days_of_a_month_are_merged_into_its_first_once,
            cases::a_day_of_usage_is_read_in_parts_from_its_end,
            cases::usage_from_many_tasks_loses_nothing,
            cases::a_write_of_usage_that_is_sent_again_counts_once,
            cases::a_write_that_a_process_left_counts_where_its_writer_is_known_and_it_is_not_there,
            cases::results_come_back_in_the_order_asked,
            cases::a_tenant_never_sees_anothers_results,
            cases::results_expire,
            cases::a_tenants_least_recently_used_results_go_first,
            cases::what_a_tenants_results_take_is_bounded_in_bytes,
            cases::the_total_bound_holds_over_all_tenants,
            cases::a_batch_longer_than_a_statement_takes_is_kept_whole,
            cases::two_stores_on_one_database_see_each_others_writes,
            cases::opening_again_migrates_nothing_and_loses_nothing,
            cases::many_stores_open_a_fresh_database_at_once,
            cases::tenants_have_unique_names_and_ids_never_used_again,
            cases::calibration_is_kept_per_revision_and_machine,
            cases::a_database_of_a_newer_program_is_refused,
            batches::a_file_is_seen_once_it_is_whole_and_by_its_tenant_alone,
            batches::what_a_tenant_keeps_in_files_is_bounded,
            batches::files_are_listed_from_both_ends_and_page_by_page,
            batches::a_batch_leaves_its_files_at_its_end_and_forgets_its_rows,
            batches::a_batch_is_counted_once_however_often_its_beginning_is_written,
            batches::what_is_said_of_a_batch_and_what_is_counted_with_it_are_written_once_and_together,
            batches::a_gateway_that_lost_its_lease_writes_nothing,
            batches::batches_and_replies_are_claimed_apart,
            corpora::a_corpus_keeps_whole_documents_and_survives_a_restart,
            corpora::a_corpus_is_never_above_its_limits,
            corpora::a_tenants_corpora_together_are_never_above_its_bytes,
            corpora::a_tenant_has_no_part_in_anothers_corpora,
            migration::a_database_of_version_6_keeps_what_it_has_and_takes_what_is_new,
            migration::a_database_of_version_8_keeps_what_it_has_and_takes_what_is_new,
            migration::a_database_of_version_11_keeps_what_it_has_and_takes_what_is_new,
            keys::a_key_keeps_its_scope_and_one_without_may_all,
            keys::keys_and_tenants_are_read_page_by_page_from_their_end,
            keys::tenants_and_keys_are_found_by_the_beginnings_of_their_names,
            keys::keys_that_work_are_counted_by_tenant,
            keys::a_rotated_key_lives_beside_its_successor_for_the_overlap,
            keys::a_rotation_makes_no_key_live_longer_than_it_was_given,
            leases::gateways_see_what_others_hold_and_replace_their_own,
            leases::a_gateway_that_is_not_heard_of_loses_its_leases,
            leases::gateways_that_renew_at_once_never_hold_more_than_there_is,
            progress::a_ticket_is_told_while_somebody_reads_it_and_by_who_has_it,
            progress::a_run_that_begins_anew_replaces_what_was_told_and_a_gap_is_not_written,
            progress::what_was_told_is_its_tenants_and_goes_with_the_end_or_the_readers,
            replies::a_reply_is_its_tenants_alone_is_replaced_and_ends,
            replies::of_a_tenants_replies_those_that_last_longest_stay,
            replies::of_a_tenants_replies_those_that_fit_its_bytes_stay,
            replies::what_a_tenant_has_of_replies_is_counted_as_it_comes_and_goes,
            replies::a_ticket_is_found_by_its_tenants_key_while_it_may_be_shown,
            key_claims::a_key_is_one_gateways_until_it_is_given_back_or_its_time_is_over,
            key_claims::who_gets_a_key_is_told_of_what_it_was_answered_with,
            key_claims::claims_are_renewed_by_their_tokens_and_all_of_a_gateway_end_at_once,
            key_claims::of_gateways_that_claim_one_key_at_once_one_gets_it,
            responses::a_response_is_its_tenants_alone_and_ends,
            responses::the_oldest_responses_of_a_tenant_make_room,
            schemas::a_schema_is_kept_replaced_listed_and_forgotten,
            schemas::a_tenant_neither_sees_nor_forgets_anothers_schema,
            schemas::what_a_tenant_may_keep_and_pin_is_bounded,
            schemas::what_a_tenants_schemas_hold_is_bounded_in_bytes,
            sql::a_key_has_a_verifier_that_is_not_the_key,
            sql::what_sql_spends_adds_up_by_tenant_and_day,
            sql::limits_come_with_what_was_computed_in_its_day_and_month,
            sql::what_operators_do_is_written_before_it_is_done,
            sql::a_ticket_that_begins_again_has_no_rows,
            takes::a_take_counts_until_it_is_given_back_or_a_row_is_stored,
            takes::a_ticket_is_taken_by_its_holder_alone,
            takes::a_batch_is_taken_by_who_runs_it_and_rows_of_a_rerun_are_no_progress,
            tickets::a_ticket_collects_rows_once_and_ends_once,
            tickets::usage_is_recorded_with_the_row_that_used_it_once,
            tickets::a_row_and_what_it_used_are_stored_together_by_who_has_the_ticket,
            tickets::what_the_work_of_a_ticket_keeps_is_counted_once_and_goes_with_its_end,
            tickets::a_tenants_tickets_stay_within_its_bytes,
            tickets::the_oldest_responses_that_are_over_make_room_for_a_tenants_tickets,
            tickets::more_rows_than_a_statement_takes_are_appended_once_each,
            tickets::another_tenant_can_neither_read_nor_delete_a_ticket,
            tickets::deleted_and_expired_tickets_take_no_more_rows,
            tickets::a_restarted_gateway_claims_its_own_tickets_and_others_wait_for_the_lease,
            tickets::an_acknowledged_ticket_survives_kill_dash_nine,
            uploads::the_parts_of_an_upload_become_a_file_of_its_tenant,
            uploads::uploads_stay_within_what_their_tenant_may_keep,
            uploads::an_upload_that_is_called_off_or_late_takes_no_more_parts,
            uploads::bytes_of_parts_count_while_they_come,
            uploads::bytes_of_files_count_while_they_come,
            uploads::what_a_node_receives_ends_with_it,
            versions::a_database_of_version_1_keeps_all_it_has,
            versions::a_database_of_version_2_keeps_all_it_has,
            versions::a_database_of_version_3_keeps_all_it_has,
            versions::a_database_of_version_4_keeps_all_it_has,
            versions::a_database_of_version_5_keeps_all_it_has,
            versions::a_database_of_version_6_keeps_all_it_has,
            versions::a_database_of_version_7_keeps_all_it_has,
            versions::a_database_of_version_8_keeps_all_it_has,
            versions::a_database_of_version_9_keeps_all_it_has,
            versions::a_database_of_version_10_keeps_all_it_has,
            versions::a_database_of_version_11_keeps_all_it_has,
            versions::a_database_of_version_12_keeps_all_it_has,
            versions::a_database_of_version_13_keeps_all_it_has,
            versions::a_database_of_version_14_keeps_all_it_has,
            versions::a_database_of_version_15_keeps_all_it_has,
            versions::a_database_of_version_16_keeps_all_it_has,
            versions::a_database_of_version_17_keeps_all_it_has,
            versions::a_database_of_version_18_keeps_all_it_has,
            versions::a_database_of_version_19_keeps_all_it_has,
            versions::a_database_of_version_20_keeps_all_it_has,
            versions::a_database_of_version_21_keeps_all_it_has,
            versions::a_database_of_version_22_keeps_all_it_has,
            workbooks::a_save_stands_on_the_version_it_names_or_is_refused,
            workbooks::a_workbook_made_anew_is_none_of_the_versions_of_the_deleted_one,
            workbooks::of_two_saves_at_once_one_is_kept,
            workbooks::saves_of_a_stretch_are_one_version_and_old_ones_go,
            workbooks::a_closed_version_is_not_written_over,
            workbooks::a_tenants_workbooks_stay_within_its_quota,
            workbooks::what_is_new_is_never_refused_for_what_is_old,
            workbooks::a_tenant_has_no_part_in_anothers_workbooks,
            workbooks::a_link_shows_a_workbook_until_it_ends,
            workbooks::a_sign_in_token_works_once_and_not_for_long,
            workbooks::keys_of_links_go_when_they_are_past_their_date_and_no_others,
            workbooks::an_operators_key_is_told_from_a_tenants,
            workbooks::a_database_keeps_its_identity,
        }
    };
}

/// A store that gives up soon, so that a test of failure does not take long.
pub(crate) async fn open(url: &str) -> Store {
    let options =
        StoreOptions { acquire_ms_max: Millis(20_000), call_ms_max: Millis(30_000), ..Default::default() };
    Store::open_with(url, options).await.expect("the store opens")
}

/// An instant some seconds after an arbitrary start.
pub(crate) fn at(seconds: u64) -> UnixMillis {
    UnixMillis(1_700_000_000_000 + seconds * 1_000)
}

/// A second tenant.
pub(crate) async fn second_tenant(store: &Store) -> TenantId {
    store.create_tenant("zeta", 2.0, at(0)).await.expect("a new name").id
}

/// A lease of a gateway's first process.
pub(crate) fn lease(holder: &str, until: u64) -> Lease {
    Lease { holder: holder.to_owned(), process: format!("{holder}'s first"), until: at(until) }
}

/// A ticket that expires after 1,000 seconds.
pub(crate) fn ticket<'a>(id: &'a str, tenant: TenantId, lease: &'a Lease) -> NewTicket<'a> {
    let (kind, request) = ("relquery", r#"{"rows":3}"#);
    NewTicket { id, tenant, kind, request, expires: at(1_000), lease, key: None }
}

/// The first write of usage of a process.
pub(crate) fn first_write<'a>(writer: &'a str, rows: &'a [UsageRow]) -> UsageWrite<'a> {
    UsageWrite { writer, number: 1, rows, at: at(1) }
}

/// A finished row.
pub(crate) fn row(row: u32, result: &str) -> TicketRow {
    TicketRow { row, result: result.to_owned(), failed: false }
}

/// Two processes on one database, and the names that they take.
pub(crate) async fn nodes(one: &Store, other: &Store) {
    let claim = one.claim_node("gateway/1").await.expect("it is free");
    let error = other.claim_node("gateway/1").await.expect_err("it is taken");
    assert!(error.to_string().contains("`gateway/1`"), "{error}");
    let _second = other.claim_node("gateway-1").await.expect("another name");
    drop(claim);
    // A server hears a little later that a connection has ended.
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
    while let Err(error) = other.claim_node("gateway/1").await {
        assert!(matches!(error, store::Error::Taken { .. }), "{error}");
        looks.tick().await;
    }
}
