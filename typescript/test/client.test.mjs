// The client against a real server: RELSERVE_URL and RELSERVE_KEY say which.
import assert from "node:assert/strict";
import { test } from "node:test";
import { RelServeError, createClient, events } from "../dist/index.js";

const url = process.env.RELSERVE_URL;
const api = createClient({ url, key: process.env.RELSERVE_KEY });
const reviews = { template: "Is it good? {review}", columns: ["review"], rows: [["fine"], ["bad"]], max_tokens: 4 };

test("a relQuery has a row for each of the table's", async () => {
  const { data } = await api.POST("/v1/relqueries", { body: reviews });
  assert.equal(data.status, "completed");
  assert.deepEqual(data.rows.map((row) => [row.index, typeof row.text]), [[0, "string"], [1, "string"]]);
});

test("rows stream as they end, and the last event is the reply", async () => {
  const reply = await api.POST("/v1/relqueries", { body: { ...reviews, stream: true }, parseAs: "stream" });
  const seen = [];
  for await (const event of events(reply)) seen.push(event);
  assert.deepEqual(seen.map((event) => event.name), ["row", "row", "done"]);
  assert.deepEqual(seen.slice(0, 2).map((event) => event.data.index).sort(), [0, 1]);
  assert.equal(seen[2].data.progress.done, 2);
});

test("a chat is answered, and streams until it is done", async () => {
  const { data: { data: [model] } } = await api.GET("/v1/models");
  const body = { model: model.id, messages: [{ role: "user", content: "Is it good? Text: fine" }], max_tokens: 8 };
  const { data } = await api.POST("/v1/chat/completions", { body });
  assert.equal(typeof data.choices[0].message.content, "string");
  const reply = await api.POST("/v1/chat/completions", { body: { ...body, stream: true }, parseAs: "stream" });
  let text = "";
  for await (const event of events(reply)) text += event.data.choices[0]?.delta.content ?? "";
  assert.ok(text.length > 0);
});

test("a batch runs a file's requests", async () => {
  const body = { messages: [{ role: "user", content: "Is it good? Text: fine" }], max_tokens: 4 };
  const line = { custom_id: "1", method: "POST", url: "/v1/chat/completions", body };
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File([JSON.stringify(line)], "batch.jsonl"));
  const { data: file } = await api.POST("/v1/files", { body: form, bodySerializer: (form) => form });
  const asked = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  let { data: batch } = await api.POST("/v1/batches", { body: asked });
  while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
    ({ data: batch } = await api.GET("/v1/batches/{id}", { params: { path: { id: batch.id } } }));
  }
  assert.deepEqual(batch.request_counts, { total: 1, completed: 1, failed: 0 }, JSON.stringify(batch));
  const path = { id: batch.output_file_id };
  const { data: output } = await api.GET("/v1/files/{id}/content", { params: { path }, parseAs: "text" });
  assert.equal(JSON.parse(output).custom_id, "1");
});

test("what is refused is thrown with the field to blame", async () => {
  const refused = (error) => error instanceof RelServeError && error.status === 400 && error.detail.param === "temperature";
  await assert.rejects(api.POST("/v1/relqueries", { body: { ...reviews, temperature: 9 } }), refused);
  const stranger = createClient({ url, key: "rs-none" });
  await assert.rejects(stranger.GET("/v1/models"), (error) => error.status === 401);
});
