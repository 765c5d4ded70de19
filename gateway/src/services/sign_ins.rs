//! Links that sign the page in: made by an operator or at the terminal, used once, and exchanged for a key.
//!
//! The `relserve` command makes them too, on a store alone. Must not know HTTP.

use base::Millis;
use store::{CreatedKey, SignIn, Store, UnixMillis};

/// What the key is called that a link is exchanged for.
const KEY_NAME: &str = "signed in by a link";

/// What stands behind a server's address in a link. Browsers keep what follows `#` to themselves: no server, proxy
/// or log sees it.
pub fn path(token: &str) -> String {
    format!("/#sign-in={token}")
}

/// Makes a link's token.
pub async fn create(
    store: &Store,
    sign_in: SignIn,
    span: Millis,
    now: UnixMillis,
) -> Result<String, store::Error> {
    store.create_sign_in(sign_in, now.after(span), now).await
}

/// Exchanges a token for a new key that works for `span`; `None` where the token is of no use.
pub async fn exchange(
    store: &Store,
    token: &str,
    span: Millis,
    now: UnixMillis,
) -> Result<Option<CreatedKey>, store::Error> {
    store.exchange_sign_in(token, (KEY_NAME, span), now).await
}
