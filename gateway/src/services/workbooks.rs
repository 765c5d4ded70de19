//! Workbooks of tenants, on top of the store: what the page keeps on the server, and links that show it to readers.
//!
//! A refusal for want of room names the setting that sets the bound. Must not know HTTP, nor what stands in a
//! workbook.

use base::{Bytes, Millis, TenantId};
use serving::error::{RequestError, of_store, stored};
use sha2::{Digest as _, Sha256};
use store::{
    UnixMillis, Workbook, WorkbookDeleted, WorkbookDraft, WorkbookSaved, WorkbookShare, WorkbookVersion,
};

use crate::state::App;

/// Saves a workbook, unless another version was saved since the one that the draft stands on.
pub async fn save(
    app: &App,
    tenant: TenantId,
    draft: WorkbookDraft<'_>,
) -> Result<WorkbookSaved, RequestError> {
    let limits = app.config.workbooks.limits();
    app.runtime
        .store
        .save_workbook(tenant, draft, limits, now(app))
        .await
        .map_err(|error| refused(app, error))
}

/// A tenant's workbooks, the one saved last first, and the bytes that all of their versions take.
pub async fn list(app: &App, tenant: TenantId) -> Result<(Vec<Workbook>, Bytes), RequestError> {
    let workbooks = stored(app.runtime.store.workbooks(tenant).await)?;
    let usage = stored(app.runtime.store.workbook_usage(tenant..=tenant).await)?;
    Ok((workbooks, usage.first().map_or(Bytes(0), |usage| usage.bytes)))
}

/// A kept version of a workbook with its content; without a number the newest.
pub async fn read(
    app: &App,
    tenant: TenantId,
    id: &str,
    number: Option<u64>,
) -> Result<(WorkbookVersion, String), RequestError> {
    let found = stored(app.runtime.store.workbook_content(tenant, id, number).await)?;
    found.ok_or_else(|| match number {
        Some(number) => RequestError::NotFound(format!("version {number} of the workbook `{id}`")),
        None => gone(id),
    })
}

/// The kept versions of a workbook, the newest first.
pub async fn versions(app: &App, tenant: TenantId, id: &str) -> Result<Vec<WorkbookVersion>, RequestError> {
    let versions = stored(app.runtime.store.workbook_versions(tenant, id).await)?;
    // A workbook has one at least.
    if versions.is_empty() { Err(gone(id)) } else { Ok(versions) }
}

/// Deletes a workbook with its versions and links; where a version is named, only while that is its newest.
pub async fn delete(
    app: &App,
    tenant: TenantId,
    place: (&str, Option<u64>),
) -> Result<WorkbookDeleted, RequestError> {
    stored(app.runtime.store.delete_workbook(tenant, place, now(app)).await)
}

/// Makes a link that shows a workbook for a while; gives its token, which is kept nowhere.
pub async fn share(
    app: &App,
    (tenant, id): (TenantId, &str),
    span: Millis,
) -> Result<(WorkbookShare, String), RequestError> {
    let (limit, now) = (app.config.workbooks.shares_max, now(app));
    let made = app.runtime.store.create_share((tenant, id), limit, now.after(span), now).await;
    made.map_err(|error| match error {
        store::Error::Missing(_) => gone(id),
        error => refused(app, error),
    })
}

/// The links that show a workbook.
pub async fn shares(app: &App, tenant: TenantId, id: &str) -> Result<Vec<WorkbookShare>, RequestError> {
    if stored(app.runtime.store.workbook(tenant, id).await)?.is_none() {
        return Err(gone(id));
    }
    stored(app.runtime.store.shares(tenant, id, now(app)).await)
}

/// Ends a link.
pub async fn end_share(app: &App, tenant: TenantId, id: &str, share: u64) -> Result<(), RequestError> {
    if stored(app.runtime.store.delete_share(tenant, id, share).await)? {
        return Ok(());
    }
    Err(share_gone(id, &share.to_string()))
}

/// What a link shows; `None` where it ended or never was.
pub async fn shared(app: &App, token: &str) -> Result<Option<(WorkbookVersion, String)>, RequestError> {
    stored(app.runtime.store.shared_workbook(token, now(app)).await)
}

/// What tells a tenant's workbooks from all others': a browser that has known another server, or another tenant, must not
/// take those for these.
pub async fn scope(app: &App, tenant: TenantId) -> Result<String, RequestError> {
    let database = stored(app.runtime.store.identity().await)?;
    let digest = Sha256::digest(format!("workbooks of tenant {} in {database}", tenant.0));
    Ok(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The error of a link that is not there.
pub fn share_gone(id: &str, share: &str) -> RequestError {
    RequestError::NotFound(format!("link {share} of the workbook `{id}`"))
}

/// The error of a workbook that is not there.
pub fn gone(id: &str) -> RequestError {
    RequestError::NotFound(format!("the workbook `{id}`"))
}

fn now(app: &App) -> UnixMillis {
    app.runtime.shared.unix_now()
}

/// What a client is told of the store's refusal: the bound by its setting's name.
fn refused(app: &App, error: store::Error) -> RequestError {
    let config = &app.config.workbooks;
    let store::Error::Full { what, .. } = error else { return of_store(error) };
    let (what, limit) = match what {
        "workbooks" => (
            "the number of the tenant's workbooks",
            format!("{} (workbooks.tenant_workbooks_max)", config.tenant_workbooks_max),
        ),
        "bytes in workbooks" => (
            "what the tenant keeps in workbooks",
            format!("{} bytes (workbooks.tenant_bytes_max)", config.tenant_bytes_max.0),
        ),
        _ => ("the number of links to the workbook", format!("{} (workbooks.shares_max)", config.shares_max)),
    };
    RequestError::TooLarge { what: what.into(), limit }
}
