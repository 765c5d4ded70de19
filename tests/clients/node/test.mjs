// node's `pg`: parameters, arrays, prepared statements, cursors, streams, pools, cancellation by timeout.
// The server and the key come from the environment, as psql's do.

import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";
import Cursor from "pg-cursor";
import QueryStream from "pg-query-stream";

/** Runs a check with a client of its own. */
function check(name, body) {
  test(name, async () => {
    const client = new pg.Client();
    await client.connect();
    try {
      await body(client);
    } finally {
      await client.end();
    }
  });
}

check("parameters and types", async (client) => {
  const { rows, fields } = await client.query("SELECT id, stars FROM reviews WHERE id = $1", [1]);
  assert.deepEqual(rows, [{ id: "1", stars: "5" }]);
  assert.deepEqual(fields.map((field) => field.dataTypeID), [20, 20]);
});

check("arrays are parameters and values", async (client) => {
  const found = await client.query("SELECT id FROM reviews WHERE id = ANY($1::bigint[]) ORDER BY id", [[1, 3]]);
  assert.deepEqual(found.rows.map((row) => row.id), ["1", "3"]);
  const { rows } = await client.query("SELECT $1::text[] AS words", [["a", "b,c"]]);
  assert.deepEqual(rows[0].words, ["a", "b,c"]);
});

check("now() is a moment", async (client) => {
  const { rows, fields } = await client.query("SELECT now() AS now");
  assert.ok(rows[0].now instanceof Date);
  assert.equal(fields[0].dataTypeID, 1184);
});

check("a named statement runs again", async (client) => {
  for (const id of [1, 2]) {
    const query = { name: "one", text: "SELECT id FROM reviews WHERE id = $1", values: [id] };
    assert.equal((await client.query(query)).rows[0].id, String(id));
  }
});

check("a cursor reads in parts", async (client) => {
  const cursor = client.query(new Cursor("SELECT id FROM reviews ORDER BY id"));
  assert.equal((await cursor.read(2)).length, 2);
  assert.equal((await cursor.read(100)).length, 3);
  await cursor.close();
});

check("a stream gives rows", async (client) => {
  let count = 0;
  for await (const row of client.query(new QueryStream("SELECT * FROM reviews", [], { batchSize: 2 }))) {
    assert.ok(row.review);
    count += 1;
  }
  assert.equal(count, 5);
});

check("several statements in one text", async (client) => {
  const results = await client.query("SELECT 1 AS a; SELECT 2 AS b");
  assert.deepEqual(results.map((result) => result.rows), [[{ a: "1" }], [{ b: "2" }]]);
});

check("an error has its code, and the connection goes on", async (client) => {
  await assert.rejects(client.query("SELECT * FROM ghosts"), { code: "42P01" });
  assert.equal((await client.query("SELECT 1 AS one")).rowCount, 1);
});

check("a transaction", async (client) => {
  for (const text of ["BEGIN", "SELECT 1", "COMMIT"]) await client.query(text);
});

check("an AI column", async (client) => {
  const { rows } = await client.query("SELECT ai_sentiment(review) AS label FROM reviews WHERE id = $1", [1]);
  assert.match(rows[0].label, /^(positive|negative|neutral|mixed)$/);
});

test("a pool, and a statement that takes too long", async () => {
  const hurried = new pg.Pool({ max: 1, statement_timeout: 200 });
  const slow = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";
  await assert.rejects(hurried.query(slow), { code: "57014" });
  await hurried.end();
  const pool = new pg.Pool({ max: 2 });
  const counts = await Promise.all([1, 2, 3].map(() => pool.query("SELECT count(*) AS n FROM reviews")));
  assert.deepEqual(counts.map((result) => result.rows[0].n), ["5", "5", "5"]);
  await pool.end();
});
