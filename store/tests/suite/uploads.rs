//! Files that come in parts.

use base::{Bytes, Millis, TenantId};
use store::{
    BYTES_COMING, DEFAULT_TENANT, Error, FILE_BYTES_COMING, FileLimits, NewFile, NewPartedUpload,
    PartedUpload, ReceivedChunk, Store, UnixMillis, UploadState,
};

use super::{at, open, second_tenant};

const LIMITS: FileLimits = FileLimits { files: 3, bytes: Bytes(100) };

async fn create(store: &Store, tenant: TenantId, (id, bytes): (&str, u64)) -> Result<(), Error> {
    let new = NewPartedUpload {
        id,
        tenant,
        purpose: "batch",
        name: "in.jsonl",
        bytes: Bytes(bytes),
        kept: Some(Millis(7)),
        expires: at(100),
    };
    store.create_upload(new, LIMITS, at(1)).await
}

async fn begin_file(store: &Store, id: &str) {
    let (tenant, purpose, name, expires) = (DEFAULT_TENANT, "batch", "in.jsonl", at(100));
    let new = NewFile { id, tenant, purpose, name, is_encoded: false, expires, node: Some("a") };
    store.begin_file(new, at(1)).await.expect("begun");
}

fn chunk(number: u32, bytes: u64) -> ReceivedChunk<'static> {
    ReceivedChunk { number, content: "e30K", bytes: Bytes(bytes) }
}

/// Begins a part, to be gone on with before 50.
async fn begin_part(store: &Store, upload: &str, id: &str) -> Result<(), Error> {
    let (tenant, purpose, name, expires) = (DEFAULT_TENANT, "upload_part", "in.jsonl", at(50));
    let new = NewFile { id, tenant, purpose, name, is_encoded: true, expires, node: Some("a") };
    store.begin_part(upload, new, 2, at(1)).await
}

/// Adds a part of one chunk.
async fn add(store: &Store, upload: &str, (part, bytes): (&str, u64)) -> Result<(), Error> {
    begin_part(store, upload, part).await?;
    let added = async {
        store.receive_part((upload, part), chunk(0, bytes), at(50), at(1)).await?;
        store.finish_part((upload, part), at(100), at(1)).await
    };
    let added = added.await;
    if added.is_err() {
        assert!(store.delete_draft(DEFAULT_TENANT, part).await.expect("deleted"));
    }
    added
}

async fn found(store: &Store, tenant: TenantId, now: UnixMillis) -> Option<PartedUpload> {
    store.upload(tenant, "u", now).await.expect("read")
}

pub(crate) async fn the_parts_of_an_upload_become_a_file_of_its_tenant(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    create(&store, DEFAULT_TENANT, ("u", 6)).await.expect("made");
    let taken = create(&store, zeta, ("u", 6)).await;
    assert!(matches!(taken, Err(Error::Taken { what: "upload", .. })), "{taken:?}");
    let orphan = create(&store, TenantId(77), ("v", 6)).await;
    assert!(matches!(orphan, Err(Error::Missing("tenant"))), "{orphan:?}");
    let begun = found(&store, DEFAULT_TENANT, at(2)).await.expect("there");
    assert_eq!((begun.state, begun.bytes, begun.kept), (UploadState::Pending, Bytes(6), Some(Millis(7))));
    assert_eq!((begun.purpose.as_str(), begun.name.as_str(), &begun.file), ("batch", "in.jsonl", &None));
    assert_eq!((begun.created, begun.expires), (at(1), at(100)));
    assert_eq!(found(&store, zeta, at(2)).await, None, "another's");
    assert_eq!(found(&store, DEFAULT_TENANT, at(100)).await, None, "past its date");

    add(&store, "u", ("p", 3)).await.expect("added");
    add(&store, "u", ("q", 3)).await.expect("added");
    let parts = store.upload_parts("u").await.expect("read");
    assert_eq!(
        parts.into_iter().collect::<Vec<_>>(),
        [("p".to_owned(), Bytes(3)), ("q".to_owned(), Bytes(3))]
    );
    assert_eq!(store.file(DEFAULT_TENANT, "p", at(2)).await.expect("read"), None, "it is no file");
    begin_file(&store, "f").await;
    let finish = async |file: &'static str, limits: FileLimits| {
        store.finish_upload(("u", file), "batch", (Bytes(6), 2), (at(90), limits), at(2)).await
    };
    let full = finish("f", FileLimits { bytes: Bytes(5), ..LIMITS }).await;
    assert!(matches!(full, Err(Error::Full { limit: 5, .. })), "{full:?}");
    finish("f", LIMITS).await.expect("ended");
    let ended = found(&store, DEFAULT_TENANT, at(2)).await.expect("there");
    assert_eq!((ended.state, ended.file.as_deref()), (UploadState::Completed, Some("f")));
    let file = store.file(DEFAULT_TENANT, "f", at(2)).await.expect("read").expect("there");
    assert_eq!((file.bytes, file.lines, file.expires), (Bytes(6), 2, at(90)));
    assert_eq!(store.file_chunk("p", 0).await.expect("read"), None, "its parts are gone");
    assert!(store.upload_parts("u").await.expect("read").is_empty());
    begin_file(&store, "g").await;
    let twice = finish("g", LIMITS).await;
    assert!(matches!(twice, Err(Error::Missing("upload"))), "{twice:?}");
    assert_eq!(store.file(DEFAULT_TENANT, "g", at(2)).await.expect("read"), None, "nothing was done");
}

pub(crate) async fn uploads_stay_within_what_their_tenant_may_keep(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    begin_file(&store, "f").await;
    store.finish_file(("f", "batch"), (Bytes(40), 1), (at(90), LIMITS), at(1)).await.expect("ended");
    create(&store, DEFAULT_TENANT, ("u", 50)).await.expect("room for sixty");
    let full = create(&store, DEFAULT_TENANT, ("v", 11)).await;
    assert!(matches!(full, Err(Error::Full { what: "bytes in files", limit: 100 })), "{full:?}");
    create(&store, zeta, ("w", 100)).await.expect("another's room");
    create(&store, DEFAULT_TENANT, ("v", 10)).await.expect("room for ten");
    let full = create(&store, DEFAULT_TENANT, ("x", 1)).await;
    assert!(matches!(full, Err(Error::Full { what: "files", limit: 3 })), "{full:?}");
    assert!(store.cancel_upload("v").await.expect("asked"));
    create(&store, DEFAULT_TENANT, ("x", 1)).await.expect("there is room again");

    // What an upload will be is kept free of other files, until its time is over.
    begin_file(&store, "g").await;
    let finish = async |file: &'static str, bytes, now| {
        store.finish_file((file, "batch"), (Bytes(bytes), 1), (at(200), LIMITS), at(now)).await
    };
    let full = finish("g", 1, 1).await;
    assert!(matches!(full, Err(Error::Full { what: "files", limit: 3 })), "{full:?}");
    assert!(store.cancel_upload("x").await.expect("asked"));
    let full = finish("g", 11, 1).await;
    assert!(matches!(full, Err(Error::Full { what: "bytes in files", limit: 100 })), "{full:?}");
    finish("g", 60, 100).await.expect("the upload is forgotten");

    add(&store, "u", ("p", 30)).await.expect("added");
    let full = add(&store, "u", ("q", 21)).await;
    assert!(matches!(full, Err(Error::Full { what: "bytes in parts", limit: 50 })), "{full:?}");
    add(&store, "u", ("r", 20)).await.expect("added");
    let full = add(&store, "u", ("s", 0)).await;
    assert!(matches!(full, Err(Error::Full { what: "parts", limit: 2 })), "{full:?}");
}

pub(crate) async fn bytes_of_parts_count_while_they_come(url: String) {
    let store = open(&url).await;
    create(&store, DEFAULT_TENANT, ("u", 50)).await.expect("made");
    let receive = async |part: &'static str, chunk: ReceivedChunk<'static>, now: u64| {
        store.receive_part(("u", part), chunk, at(now + 20), at(now)).await
    };
    for part in ["p", "q"] {
        begin_part(&store, "u", part).await.expect("begun");
    }
    let many = begin_part(&store, "u", "r").await;
    assert!(matches!(many, Err(Error::Full { what: "parts", limit: 2 })), "{many:?}");
    receive("p", chunk(0, 30), 1).await.expect("received");
    assert!(store.upload_parts("u").await.expect("read").is_empty(), "it is not whole");
    let beside = receive("q", chunk(0, 21), 1).await;
    assert!(matches!(beside, Err(Error::Full { what: BYTES_COMING, limit: 50 })), "{beside:?}");
    assert_eq!(store.file_chunk("q", 0).await.expect("read"), None, "nothing was written");
    receive("q", chunk(0, 20), 1).await.expect("received");
    let beside = receive("p", chunk(1, 1), 1).await;
    assert!(matches!(beside, Err(Error::Full { what: BYTES_COMING, .. })), "{beside:?}");
    // Alone it would not fit either.
    let large = receive("q", chunk(1, 31), 1).await;
    assert!(matches!(large, Err(Error::Full { what: "bytes in parts", limit: 50 })), "{large:?}");

    // One breaks off: the other may go on.
    assert!(store.delete_draft(DEFAULT_TENANT, "q").await.expect("deleted"));
    receive("p", chunk(1, 20), 1).await.expect("received");
    store.finish_part(("u", "p"), at(100), at(2)).await.expect("ended");
    let parts: Vec<_> = store.upload_parts("u").await.expect("read").into_iter().collect();
    assert_eq!(parts, [("p".to_owned(), Bytes(50))]);
    let twice = store.finish_part(("u", "p"), at(100), at(2)).await;
    assert!(matches!(twice, Err(Error::Missing("part"))), "{twice:?}");

    // What a gateway left that was killed counts until its date, and not after it.
    create(&store, DEFAULT_TENANT, ("v", 10)).await.expect("made");
    begin_part(&store, "v", "s").await.expect("begun");
    store.receive_part(("v", "s"), chunk(0, 9), at(20), at(1)).await.expect("received");
    begin_part(&store, "v", "t").await.expect("begun");
    let beside = store.receive_part(("v", "t"), chunk(0, 10), at(50), at(19)).await;
    assert!(matches!(beside, Err(Error::Full { what: BYTES_COMING, .. })), "{beside:?}");
    store.receive_part(("v", "t"), chunk(0, 10), at(50), at(20)).await.expect("received");
    for late in [
        store.receive_part(("v", "s"), chunk(1, 0), at(50), at(20)).await,
        store.finish_part(("v", "s"), at(100), at(20)).await,
    ] {
        assert!(matches!(late, Err(Error::Missing("part"))), "{late:?}");
    }
    assert!(matches!(store.renew_draft("s", at(50), at(20)).await, Err(Error::Missing("file"))));
    assert_eq!(store.expire_files(at(20), at(0)).await.expect("swept"), 1);
    store.renew_draft("t", at(90), at(49)).await.expect("put off");
    store.finish_part(("v", "t"), at(100), at(60)).await.expect("it has come");
    assert!(store.cancel_upload("v").await.expect("asked"));
    let late = store.receive_part(("v", "t"), chunk(1, 0), at(90), at(60)).await;
    assert!(matches!(late, Err(Error::Missing("upload"))), "{late:?}");
}

pub(crate) async fn bytes_of_files_count_while_they_come(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let receive = async |file: &'static str, chunk: ReceivedChunk<'static>, now: u64| {
        store.receive_chunk(file, chunk, (at(now + 20), LIMITS), at(now)).await
    };
    for file in ["f", "g"] {
        begin_file(&store, file).await;
    }
    receive("f", chunk(0, 40), 1).await.expect("received");
    receive("f", chunk(1, 20), 1).await.expect("received");
    let beside = receive("g", chunk(0, 41), 1).await;
    assert!(matches!(beside, Err(Error::Full { what: FILE_BYTES_COMING, limit: 100 })), "{beside:?}");
    assert_eq!(store.file_chunk("g", 0).await.expect("read"), None, "nothing was written");
    let beside = create(&store, DEFAULT_TENANT, ("u", 41)).await;
    assert!(matches!(beside, Err(Error::Full { what: FILE_BYTES_COMING, .. })), "{beside:?}");
    for large in [receive("g", chunk(0, 101), 1).await, create(&store, DEFAULT_TENANT, ("u", 101)).await] {
        assert!(matches!(large, Err(Error::Full { what: "bytes in files", limit: 100 })), "{large:?}");
    }
    create(&store, zeta, ("w", 100)).await.expect("another's room");
    receive("g", chunk(0, 40), 1).await.expect("received");
    // It is counted once: as what comes, then as a file.
    store.finish_file(("f", "batch"), (Bytes(60), 1), (at(90), LIMITS), at(2)).await.expect("ended");
    let late = receive("f", chunk(2, 1), 2).await;
    assert!(matches!(late, Err(Error::Missing("file"))), "it is whole: {late:?}");
    create(&store, DEFAULT_TENANT, ("v", 1)).await.expect_err("there is no room");

    // What a gateway left that was killed counts until its date, and not after it.
    create(&store, DEFAULT_TENANT, ("v", 40)).await.expect_err("it may still come");
    let late = store.create_upload(
        NewPartedUpload {
            id: "v",
            tenant: DEFAULT_TENANT,
            purpose: "batch",
            name: "in.jsonl",
            bytes: Bytes(40),
            kept: None,
            expires: at(100),
        },
        LIMITS,
        at(21),
    );
    late.await.expect("it does not count any more");
    let late = receive("g", chunk(1, 0), 21).await;
    assert!(matches!(late, Err(Error::Missing("file"))), "{late:?}");
}

pub(crate) async fn what_a_node_receives_ends_with_it(url: String) {
    let store = open(&url).await;
    create(&store, DEFAULT_TENANT, ("u", 50)).await.expect("made");
    add(&store, "u", ("whole", 20)).await.expect("added");
    begin_part(&store, "u", "part").await.expect("begun");
    store.receive_part(("u", "part"), chunk(0, 30), at(50), at(1)).await.expect("received");
    for file in ["f", "g"] {
        begin_file(&store, file).await;
    }
    store.finish_file(("g", "batch"), (Bytes(1), 1), (at(90), LIMITS), at(1)).await.expect("ended");
    let new = NewFile {
        id: "made",
        tenant: DEFAULT_TENANT,
        purpose: "batch_output",
        name: "out.jsonl",
        is_encoded: false,
        expires: at(100),
        node: None,
    };
    store.begin_file(new, at(1)).await.expect("begun");
    store.append_chunk("made", 0, "{}").await.expect("appended");
    assert_eq!(store.delete_drafts_of("b").await.expect("asked"), 0, "another's");
    assert_eq!(store.delete_drafts_of("a").await.expect("deleted"), 2);
    assert_eq!(store.file_chunk("part", 0).await.expect("read"), None);
    for kept in ["whole", "made"] {
        assert!(store.file_chunk(kept, 0).await.expect("read").is_some(), "{kept} stays");
    }
    assert!(store.file(DEFAULT_TENANT, "g", at(2)).await.expect("read").is_some());
    // Its bytes are free for the same part, sent again.
    begin_part(&store, "u", "again").await.expect("begun");
    store.receive_part(("u", "again"), chunk(0, 30), at(50), at(1)).await.expect("received");
}

pub(crate) async fn an_upload_that_is_called_off_or_late_takes_no_more_parts(url: String) {
    let store = open(&url).await;
    create(&store, DEFAULT_TENANT, ("u", 6)).await.expect("made");
    add(&store, "u", ("p", 3)).await.expect("added");
    assert!(store.cancel_upload("u").await.expect("asked"));
    assert!(!store.cancel_upload("u").await.expect("asked"));
    assert_eq!(store.file_chunk("p", 0).await.expect("read"), None, "its parts are gone");
    let late = add(&store, "u", ("q", 3)).await;
    assert!(matches!(late, Err(Error::Missing("upload"))), "{late:?}");
    let state = found(&store, DEFAULT_TENANT, at(2)).await.map(|upload| upload.state);
    assert_eq!(state, Some(UploadState::Cancelled));

    create(&store, DEFAULT_TENANT, ("v", 6)).await.expect("made");
    add(&store, "v", ("r", 3)).await.expect("added");
    begin_part(&store, "v", "s").await.expect("begun");
    // Its time is over before anybody deletes it.
    store.renew_draft("s", at(200), at(1)).await.expect("put off");
    for late in [
        store.receive_part(("v", "s"), chunk(0, 1), at(200), at(100)).await,
        store.finish_part(("v", "s"), at(200), at(100)).await,
    ] {
        assert!(matches!(late, Err(Error::Missing("upload"))), "{late:?}");
    }
    assert!(store.delete_draft(DEFAULT_TENANT, "s").await.expect("deleted"));
    assert_eq!(store.expire_uploads(at(99)).await.expect("swept"), 0);
    assert_eq!(store.expire_uploads(at(100)).await.expect("swept"), 2);
    assert!(store.upload_parts("v").await.expect("read").is_empty());
    let late = store.finish_part(("v", "r"), at(200), at(99)).await;
    assert!(matches!(late, Err(Error::Missing("upload"))), "{late:?}");
    assert_eq!(store.expire_files(at(100), at(0)).await.expect("swept"), 1, "what its part left");
}
