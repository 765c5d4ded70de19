//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the server learns that the client has the key, and never the key.
//!
//! pgwire's server keeps the salted password, which is as good as the key to whoever steals it; a
//! [`Verifier`] keeps only what checks a proof. Channel binding is not offered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};

use super::error::{SqlError, code};

/// The mechanism's name.
pub(super) const MECHANISM: &str = "SCRAM-SHA-256";
/// Rounds of hashing that strangers are told, as many as Postgres makes.
const ITERATIONS: u32 = 4_096;
/// Bytes of a hash.
const HASH_BYTES: usize = digest::SHA256_OUTPUT_LEN;
/// Bytes of salt.
const SALT_BYTES: usize = 16;
/// Bytes of the server's half of the nonce, before they are written as text.
const NONCE_BYTES: usize = 18;

/// What checks that a client has a key, and tells nothing of the key: safe to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// Random bytes that the key was hashed with.
    pub salt: Vec<u8>,
    /// Rounds of hashing; clients repeat them.
    pub iterations: u32,
    /// SHA-256 of the client's key (RFC 5802, StoredKey).
    pub stored_key: [u8; HASH_BYTES],
    /// Proves to the client that the server has the verifier (RFC 5802, ServerKey).
    pub server_key: [u8; HASH_BYTES],
}

impl Verifier {
    /// Reads the form in which Postgres stores verifiers (and `postgres_protocol::password` makes them):
    /// `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, the last three in base64. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text.strip_prefix(MECHANISM)?.strip_prefix('$')?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
        Some(Self {
            salt: STANDARD.decode(salt).ok()?,
            iterations: iterations.parse().ok()?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }

    /// A verifier that nothing satisfies, for users that are not there: the same user gets the same salt each
    /// time, so that a stranger cannot tell who exists.
    pub(super) fn impossible(secret: &[u8], user: &str) -> Self {
        let seed = sign(secret, user.as_bytes());
        Self {
            salt: seed[..SALT_BYTES].to_vec(),
            iterations: ITERATIONS,
            stored_key: sign(secret, &seed),
            server_key: seed,
        }
    }
}

/// Random bytes of the system.
pub(super) fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    SystemRandom::new().fill(bytes).map_err(|_| std::io::Error::other("the system gives no random bytes"))
}

fn sign(key: &[u8], text: &[u8]) -> [u8; HASH_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let mut bytes = [0; HASH_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn hash(bytes: &[u8]) -> [u8; HASH_BYTES] {
    let digest = digest::digest(&digest::SHA256, bytes);
    let mut bytes = [0; HASH_BYTES];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Compares in a time that does not depend on where the two differ.
fn is_equal(left: &[u8; HASH_BYTES], right: &[u8; HASH_BYTES]) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

/// An exchange whose first half is done.
#[derive(Debug)]
pub(super) struct Exchange {
    verifier: Verifier,
    /// The header that says whether the channel is bound, as the client sent it.
    header: String,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl Exchange {
    /// Answers the client's first message; the second value goes to the client.
    pub(super) fn start(verifier: Verifier, message: &[u8]) -> Result<(Self, String), SqlError> {
        let mut nonce = [0; NONCE_BYTES];
        fill(&mut nonce).map_err(|error| SqlError::fatal(code::INTERNAL, error.to_string()))?;
        Self::start_with(verifier, message, &STANDARD.encode(nonce))
    }

    fn start_with(verifier: Verifier, message: &[u8], nonce: &str) -> Result<(Self, String), SqlError> {
        let message = std::str::from_utf8(message).map_err(|_| malformed())?;
        // gs2-header = cbind-flag "," [authzid] ","
        let mut parts = message.splitn(3, ',');
        let (flag, name, bare) = (parts.next(), parts.next(), parts.next());
        let (Some(flag), Some(name), Some(bare)) = (flag, name, bare) else { return Err(malformed()) };
        if !matches!(flag, "n" | "y") {
            return Err(malformed());
        }
        let header = format!("{flag},{name},");
        let client_nonce = bare.split(',').find_map(|part| part.strip_prefix("r=")).ok_or_else(malformed)?;
        let nonce = format!("{client_nonce}{nonce}");
        let salt = STANDARD.encode(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let client_first = bare.to_owned();
        Ok((Self { verifier, header, client_first, server_first: server_first.clone(), nonce }, server_first))
    }

    /// Checks the client's proof; `None` where it is wrong, else what goes to the client.
    pub(super) fn finish(self, message: &[u8]) -> Result<Option<String>, SqlError> {
        let message = std::str::from_utf8(message).map_err(|_| malformed())?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(malformed)?;
        let proof = STANDARD.decode(proof).map_err(|_| malformed())?;
        let proof: [u8; HASH_BYTES] = proof.try_into().map_err(|_| malformed())?;
        let expected = format!("c={},r={}", STANDARD.encode(&self.header), self.nonce);
        if without_proof != expected {
            return Err(malformed());
        }
        let transcript = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let signature = sign(&self.verifier.stored_key, transcript.as_bytes());
        let mut client_key = proof;
        for (key, signature) in client_key.iter_mut().zip(signature) {
            *key ^= signature;
        }
        if !is_equal(&hash(&client_key), &self.verifier.stored_key) {
            return Ok(None);
        }
        let signature = sign(&self.verifier.server_key, transcript.as_bytes());
        Ok(Some(format!("v={}", STANDARD.encode(signature))))
    }
}

fn malformed() -> SqlError {
    SqlError::protocol("malformed SCRAM message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the password `pencil`, as `postgres_protocol` makes it.
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
                          $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn only_whole_verifiers_are_read() {
        for text in
            ["", "SCRAM-SHA-256", "SCRAM-SHA-1$4096:AA==$AA==:AA==", "SCRAM-SHA-256$4096:AA==$AA==:AA=="]
        {
            assert_eq!(Verifier::parse(text), None, "{text}");
        }
        assert_eq!(Verifier::parse(&PENCIL.replace("4096", "many")), None);
    }

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_standard_succeeds() {
        let verifier = Verifier::parse(PENCIL).unwrap();
        let (exchange, first) = Exchange::start_with(
            verifier,
            b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        .unwrap();
        assert_eq!(
            first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = exchange.finish(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
              p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        );
        assert_eq!(last, Ok(Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_owned())));
    }

    #[test]
    fn an_impossible_verifier_keeps_its_salt_per_user() {
        let first = Verifier::impossible(b"secret", "nobody");
        assert_eq!(first, Verifier::impossible(b"secret", "nobody"));
        assert_ne!(first.salt, Verifier::impossible(b"secret", "somebody").salt);
    }
}
