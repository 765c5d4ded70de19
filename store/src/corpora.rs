//! Corpora: documents of a tenant, cut into fragments with their vectors.
//!
//! A document is replaced whole or not at all, and no write leaves a corpus above its limits. Every write
//! gives the corpus a revision that was never used before, so that a gateway knows whether what it has in
//! memory is what is here. A vector is bytes that only the caller can read; every statement names the tenant.

use base::{Bytes, TenantId, TokenCount};
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use crate::error::{Error, foreign, new_of};
use crate::open::{Lock, Store};
use crate::tenants::next_id;
use crate::time::{UnixMillis, from_sql, instant, to_sql};

/// Fragments per statement: seven parameters each, below both databases' limits.
const FRAGMENTS_PER_STATEMENT: usize = 64;
/// What [`Error::Full`] says where all corpora of a tenant together would have more bytes than they may.
pub const CORPORA_BYTES: &str = "bytes of the tenant's corpora";
/// Names per statement.
const NAMES_PER_STATEMENT: usize = 256;

/// A corpus by its name, as long as its vectors are by this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorpusOf<'a> {
    pub name: &'a str,
    /// The identity of the model that makes its vectors.
    pub embedder: &'a str,
}

/// What a corpus is made with, for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCorpus<'a> {
    /// Its name, unique to the tenant.
    pub name: &'a str,
    /// The identity of the model that makes its vectors: the caller's word.
    pub embedder: &'a str,
    /// Numbers of a vector.
    pub dims: u64,
    /// Most tokens of a fragment.
    pub fragment_tokens: TokenCount,
    /// Tokens that a fragment has in common with the one before.
    pub overlap: TokenCount,
}

/// A corpus as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    pub name: String,
    /// The identity of the model that made its vectors.
    pub embedder: String,
    /// Numbers of a vector.
    pub dims: u64,
    /// Most tokens of a fragment.
    pub fragment_tokens: TokenCount,
    /// Tokens that a fragment has in common with the one before.
    pub overlap: TokenCount,
    /// Another with every write.
    pub revision: u64,
    /// When it was made.
    pub created: UnixMillis,
    /// When it was last written.
    pub updated: UnixMillis,
    pub documents: u64,
    pub fragments: u64,
    /// Bytes of the documents' texts.
    pub bytes: Bytes,
    /// Tokens of all fragments.
    pub tokens: TokenCount,
}

/// A document to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDocument {
    /// Its name, unique to the corpus; one of that name is replaced.
    pub id: String,
    /// A hash of its text: the caller's word.
    pub digest: String,
    /// Bytes of its text.
    pub bytes: Bytes,
    /// Its fragments in order.
    pub fragments: Vec<StoredFragment>,
}

/// A fragment and its vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFragment {
    /// What it says.
    pub text: String,
    pub tokens: TokenCount,
    /// Its vector, in the caller's form.
    pub vector: Vec<u8>,
}

/// Where a fragment stands; the order of [`Store::fragments`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FragmentKey {
    /// The document's name.
    pub document: String,
    /// Its number within the document.
    pub number: u32,
}

/// What a tenant may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorpusLimits {
    pub documents_max: u64,
    pub fragments_max: u64,
    /// Bytes of a corpus' texts.
    pub bytes_max: Bytes,
    /// Bytes of all of the tenant's corpora together: texts, and vectors in single precision.
    pub tenant_bytes_max: Bytes,
}

type CorpusColumns = (String, String, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);

/// A tenant's corpora, or the one of a name.
const SELECT: &str = "SELECT name, embedder, dims, fragment_tokens, fragment_overlap, revision, created, updated, \
    documents, fragments, bytes, tokens FROM corpora WHERE tenant = $1 AND ($2 IS NULL OR name = $2) ORDER BY name";

impl Corpus {
    /// Bytes of its texts, and of its vectors in single precision.
    pub fn held_bytes(&self) -> Bytes {
        Bytes(self.bytes.0.saturating_add(vector_bytes(self.fragments, self.dims).0))
    }
}

/// Bytes of so many vectors in single precision.
pub fn vector_bytes(vectors: u64, dims: u64) -> Bytes {
    Bytes(vectors.saturating_mul(dims).saturating_mul(4))
}

impl Store {
    /// Makes an empty corpus. [`Error::Taken`] where the tenant has one of that name, [`Error::Full`] where
    /// it has `corpora_max` already.
    pub async fn create_corpus(
        &self,
        tenant: TenantId,
        new: NewCorpus<'_>,
        corpora_max: u64,
        now: UnixMillis,
    ) -> Result<(), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Corpora).await?;
            let (held,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM corpora WHERE tenant = $1 AND name <> $2")
                .bind(to_sql(tenant.0))
                .bind(new.name)
                .fetch_one(&mut *tx)
                .await?;
            if from_sql(held) >= corpora_max {
                return Err(Error::Full { what: "corpora", limit: corpora_max });
            }
            let revision = next_id(&mut tx, "corpus").await?;
            sqlx::query(
                "INSERT INTO corpora (tenant, name, embedder, dims, fragment_tokens, fragment_overlap, revision, \
                 documents, fragments, bytes, tokens, created, updated) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, $8, $8)",
            )
            .bind(to_sql(tenant.0))
            .bind(new.name)
            .bind(new.embedder)
            .bind(to_sql(new.dims))
            .bind(to_sql(new.fragment_tokens.0))
            .bind(to_sql(new.overlap.0))
            .bind(revision)
            .bind(now.to_sql())
            .execute(&mut *tx)
            .await
            .map_err(new_of("corpus", new.name))?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// A tenant's corpus.
    pub async fn corpus(&self, tenant: TenantId, name: &str) -> Result<Option<Corpus>, Error> {
        Ok(self.some_corpora(tenant, Some(name)).await?.pop())
    }

    /// All corpora of a tenant, by name.
    pub async fn corpora(&self, tenant: TenantId) -> Result<Vec<Corpus>, Error> {
        self.some_corpora(tenant, None).await
    }

    async fn some_corpora(&self, tenant: TenantId, name: Option<&str>) -> Result<Vec<Corpus>, Error> {
        self.reading(async {
            let rows: Vec<CorpusColumns> =
                sqlx::query_as(SELECT).bind(to_sql(tenant.0)).bind(name).fetch_all(self.pool()).await?;
            Ok(rows.into_iter().map(corpus).collect())
        })
        .await
    }

    /// Deletes a corpus with all that is in it. `false` where the tenant has none of that name.
    pub async fn delete_corpus(&self, tenant: TenantId, name: &str) -> Result<bool, Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Corpora).await?;
            let done = sqlx::query("DELETE FROM corpora WHERE tenant = $1 AND name = $2")
                .bind(to_sql(tenant.0))
                .bind(name)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(done.rows_affected() > 0)
        })
        .await
    }

    /// The digests of those of these documents that a corpus has.
    pub async fn document_digests(
        &self,
        tenant: TenantId,
        corpus: &str,
        ids: &[&str],
    ) -> Result<Vec<(String, String)>, Error> {
        self.reading(async {
            let mut found = Vec::new();
            for chunk in ids.chunks(NAMES_PER_STATEMENT) {
                let names: Vec<String> = (3..3 + chunk.len()).map(|number| format!("${number}")).collect();
                let sql = format!(
                    "SELECT id, digest FROM corpus_documents WHERE tenant = $1 AND corpus = $2 AND id IN ({})",
                    names.join(", ")
                );
                // Safe: nothing but numbered placeholders is put in.
                let mut query = sqlx::query_as::<Any, (String, String)>(AssertSqlSafe(sql))
                    .bind(to_sql(tenant.0))
                    .bind(corpus);
                for id in chunk {
                    query = query.bind(*id);
                }
                found.extend(query.fetch_all(self.pool()).await?);
            }
            Ok(found)
        })
        .await
    }

    /// Adds documents to a corpus, or replaces those of the same names: all or none. Gives the corpus'
    /// revisions before and after. [`Error::Full`] where it would be above its limits, [`Error::Missing`]
    /// where there is no such corpus, or no longer one of vectors by this embedder.
    pub async fn put_documents(
        &self,
        tenant: TenantId,
        CorpusOf { name: corpus, embedder }: CorpusOf<'_>,
        documents: &[NewDocument],
        limits: CorpusLimits,
        now: UnixMillis,
    ) -> Result<(u64, u64), Error> {
        self.bounded(async {
            let mut tx = self.begin_write(Lock::Corpora).await?;
            let before: Option<(i64,)> = sqlx::query_as(
                "SELECT revision FROM corpora WHERE tenant = $1 AND name = $2 AND embedder = $3",
            )
            .bind(to_sql(tenant.0))
            .bind(corpus)
            .bind(embedder)
            .fetch_optional(&mut *tx)
            .await?;
            let Some((before,)) = before else { return Err(Error::Missing("corpus")) };
            let revision = next_id(&mut tx, "corpus").await?;
            sqlx::query("UPDATE corpora SET revision = $1, updated = $2 WHERE tenant = $3 AND name = $4")
                .bind(revision)
                .bind(now.to_sql())
                .bind(to_sql(tenant.0))
                .bind(corpus)
                .execute(&mut *tx)
                .await?;
            for document in documents {
                put_document(&mut tx, tenant, corpus, document).await?;
            }
            add_up(&mut tx, tenant, corpus, limits).await?;
            tx.commit().await?;
            Ok((from_sql(before), from_sql(revision)))
        })
        .await
    }

    /// Up to `limit` fragments behind a place (from the first on without one), by document and number.
    pub async fn fragments(
        &self,
        tenant: TenantId,
        corpus: &str,
        after: Option<&FragmentKey>,
        limit: u32,
    ) -> Result<Vec<(FragmentKey, StoredFragment)>, Error> {
        self.reading(async {
            let (document, number) =
                after.map_or(("", -1), |place| (place.document.as_str(), i64::from(place.number)));
            let rows: Vec<(String, i64, String, i64, Vec<u8>)> = sqlx::query_as(
                "SELECT document, place, content, tokens, vector FROM corpus_fragments \
                 WHERE tenant = $1 AND corpus = $2 AND (document > $3 OR (document = $3 AND place > $4)) \
                 ORDER BY document, place LIMIT $5",
            )
            .bind(to_sql(tenant.0))
            .bind(corpus)
            .bind(document)
            .bind(number)
            .bind(i64::from(limit))
            .fetch_all(self.pool())
            .await?;
            rows.into_iter().map(fragment).collect()
        })
        .await
    }
}

/// Replaces one document.
async fn put_document(
    tx: &mut AnyConnection,
    tenant: TenantId,
    corpus: &str,
    document: &NewDocument,
) -> Result<(), Error> {
    sqlx::query("DELETE FROM corpus_documents WHERE tenant = $1 AND corpus = $2 AND id = $3")
        .bind(to_sql(tenant.0))
        .bind(corpus)
        .bind(&document.id)
        .execute(&mut *tx)
        .await?;
    let tokens: u64 = document.fragments.iter().map(|fragment| fragment.tokens.0).sum();
    sqlx::query(
        "INSERT INTO corpus_documents (tenant, corpus, id, digest, bytes, tokens, fragments) \
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(to_sql(tenant.0))
    .bind(corpus)
    .bind(&document.id)
    .bind(&document.digest)
    .bind(to_sql(document.bytes.0))
    .bind(to_sql(tokens))
    .bind(to_sql(document.fragments.len() as u64))
    .execute(&mut *tx)
    .await
    .map_err(|error| foreign(error, Error::Missing("corpus")))?;
    let numbered: Vec<(i64, &StoredFragment)> = (0..).zip(&document.fragments).collect();
    for chunk in numbered.chunks(FRAGMENTS_PER_STATEMENT) {
        let row = |i: usize| {
            let names: Vec<String> = (4 * i + 4..4 * i + 8).map(|number| format!("${number}")).collect();
            format!("($1, $2, $3, {})", names.join(", "))
        };
        let rows: Vec<String> = (0..chunk.len()).map(row).collect();
        let sql = format!(
            "INSERT INTO corpus_fragments (tenant, corpus, document, place, content, tokens, vector) VALUES {}",
            rows.join(", ")
        );
        // Safe: nothing but numbered placeholders is put in.
        let mut query =
            sqlx::query::<Any>(AssertSqlSafe(sql)).bind(to_sql(tenant.0)).bind(corpus).bind(&document.id);
        for (number, fragment) in chunk {
            query = query
                .bind(*number)
                .bind(&fragment.text)
                .bind(to_sql(fragment.tokens.0))
                .bind(&fragment.vector[..]);
        }
        query.execute(&mut *tx).await?;
    }
    Ok(())
}

/// Writes a corpus' sums; refuses what stands in the open transaction where they are above a limit.
async fn add_up(
    tx: &mut AnyConnection,
    tenant: TenantId,
    corpus: &str,
    limits: CorpusLimits,
) -> Result<(), Error> {
    // SUM of a BIGINT is no BIGINT on Postgres.
    let (documents, fragments, bytes, tokens): (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT COUNT(*), CAST(COALESCE(SUM(fragments), 0) AS BIGINT), CAST(COALESCE(SUM(bytes), 0) AS BIGINT), \
         CAST(COALESCE(SUM(tokens), 0) AS BIGINT) FROM corpus_documents WHERE tenant = $1 AND corpus = $2",
    )
    .bind(to_sql(tenant.0))
    .bind(corpus)
    .fetch_one(&mut *tx)
    .await?;
    let bounds = [
        ("documents", documents, limits.documents_max),
        ("fragments", fragments, limits.fragments_max),
        ("bytes", bytes, limits.bytes_max.0),
    ];
    if let Some((what, _, limit)) = bounds.into_iter().find(|(_, count, limit)| from_sql(*count) > *limit) {
        return Err(Error::Full { what, limit });
    }
    sqlx::query(
        "UPDATE corpora SET documents = $1, fragments = $2, bytes = $3, tokens = $4 WHERE tenant = $5 AND name = $6",
    )
    .bind(documents)
    .bind(fragments)
    .bind(bytes)
    .bind(tokens)
    .bind(to_sql(tenant.0))
    .bind(corpus)
    .execute(&mut *tx)
    .await?;
    let (all,): (i64,) = sqlx::query_as(
        "SELECT CAST(COALESCE(SUM(bytes + fragments * dims * 4), 0) AS BIGINT) FROM corpora WHERE tenant = $1",
    )
    .bind(to_sql(tenant.0))
    .fetch_one(&mut *tx)
    .await?;
    let limit = limits.tenant_bytes_max.0;
    if from_sql(all) > limit {
        return Err(Error::Full { what: CORPORA_BYTES, limit });
    }
    Ok(())
}

fn corpus(row: CorpusColumns) -> Corpus {
    let (
        name,
        embedder,
        dims,
        fragment_tokens,
        overlap,
        revision,
        created,
        updated,
        documents,
        fragments,
        bytes,
        tokens,
    ) = row;
    Corpus {
        name,
        embedder,
        dims: from_sql(dims),
        fragment_tokens: TokenCount(from_sql(fragment_tokens)),
        overlap: TokenCount(from_sql(overlap)),
        revision: from_sql(revision),
        created: instant(created),
        updated: instant(updated),
        documents: from_sql(documents),
        fragments: from_sql(fragments),
        bytes: Bytes(from_sql(bytes)),
        tokens: TokenCount(from_sql(tokens)),
    }
}

fn fragment(row: (String, i64, String, i64, Vec<u8>)) -> Result<(FragmentKey, StoredFragment), Error> {
    let (document, number, text, tokens, vector) = row;
    let number = u32::try_from(number)
        .map_err(|error| Error::Broken { what: "place of a fragment", reason: error.to_string() })?;
    Ok((
        FragmentKey { document, number },
        StoredFragment { text, tokens: TokenCount(from_sql(tokens)), vector },
    ))
}
