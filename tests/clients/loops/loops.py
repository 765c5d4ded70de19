"""Whole loops of SDKs over a column, of several tenants at once: the seconds until each loop has its last row.

usage: loops.py ADDRESS CLIENT ROWS=KEY [ROWS=KEY ..]    CLIENT: asyncio, langchain, daft, ray or lotus

Each loop is a process of its own that begins its rows when all processes are ready, and prints one line of JSON:
{"rows": 40, "seconds": 3.2, "answers": 40}. A last line says how many of their requests joined another's relQuery:
{"joined": 37}. Only the client's own settings are used: a base address and a key.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import queue
import sys
import time
import urllib.request

# Enough that rows wait for the server, and not for a client that is slow to send the next.
MAX_TOKENS = 32
SYSTEM = "You label reviews. Answer with one word: good, bad or mixed."
SUBJECTS = ["The soup", "The hotel", "This phone", "The film", "Our guide", "The bike", "The battery", "The staff"]
OPINIONS = ["was far better than we expected", "broke after a week", "was fine", "cost too much for what it is"]


def texts(rows):
    """Rows that differ, so that none is answered with another's."""
    return [
        f"Review {row}: {SUBJECTS[row % len(SUBJECTS)]} {OPINIONS[row % len(OPINIONS)]}."
        for row in range(rows)
    ]


def messages(text):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def with_asyncio(address, key, model):
    from openai import AsyncOpenAI

    async def run(rows):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=key, timeout=600) as client:
            ask = client.chat.completions.create
            asked = [ask(model=model, messages=messages(text), max_tokens=MAX_TOKENS, temperature=0) for text in rows]
            return [reply.choices[0].message.content for reply in await asyncio.gather(*asked)]

    return lambda rows: asyncio.run(run(rows))


def with_langchain(address, key, model):
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model=model, base_url=f"{address}/v1", api_key=key, max_tokens=MAX_TOKENS, temperature=0, timeout=600)
    chain = ChatPromptTemplate.from_messages([("system", SYSTEM), ("user", "{text}")]) | chat

    def run(rows):
        replies = chain.batch([{"text": text} for text in rows], config={"max_concurrency": len(rows)})
        return [reply.content for reply in replies]

    return run


def with_daft(address, key, model):
    import daft
    from daft.ai.openai.provider import OpenAIProvider
    from daft.functions import prompt

    provider = OpenAIProvider("relserve", base_url=f"{address}/v1", api_key=key, timeout=600)

    def run(rows):
        said = prompt(
            daft.col("text"), system_message=SYSTEM, provider=provider, model=model,
            use_chat_completions=True, max_tokens=MAX_TOKENS, temperature=0,
        )
        return daft.from_pydict({"text": rows}).with_column("said", said).to_pydict()["said"]

    return run


def start_ray(loops):
    """One cluster for all loops, which find it by `RAY_ADDRESS`: several that begin at once hinder each other."""
    import ray

    # A loop's rows are one task, which waits for the server; what else a loop runs must not wait for another's.
    cluster = ray.init(
        num_cpus=4 * loops, object_store_memory=128 << 20, include_dashboard=False, log_to_driver=False,
        logging_level=logging.ERROR,
    )
    os.environ["RAY_ADDRESS"] = cluster.address_info["gcs_address"]


def with_ray(address, key, model):
    import ray
    import ray.data

    ray.init(log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    # A worker has no module of this name: what it runs names nothing of this file.
    system, max_tokens = SYSTEM, MAX_TOKENS

    def run(rows):
        def label(batch):
            from concurrent.futures import ThreadPoolExecutor

            from openai import OpenAI

            client = OpenAI(base_url=f"{address}/v1", api_key=key, timeout=600)

            def ask(text):
                said = [{"role": "system", "content": system}, {"role": "user", "content": text}]
                reply = client.chat.completions.create(model=model, messages=said, max_tokens=max_tokens, temperature=0)
                return reply.choices[0].message.content

            texts = [str(text) for text in batch["text"]]
            with ThreadPoolExecutor(len(texts)) as pool:
                said = list(pool.map(ask, texts))
            return {"text": texts, "said": said}

        table = ray.data.from_items([{"text": text} for text in rows])
        return [row["said"] for row in table.map_batches(label, batch_size=len(rows)).take_all()]

    return run


def with_lotus(address, key, model):
    import litellm
    import lotus
    import pandas
    from lotus.models import LM

    # They say of every row that the model has no price.
    litellm.suppress_debug_info = True
    logging.disable(logging.WARNING)
    served = LM(
        model=f"openai/{model}", api_base=f"{address}/v1", api_key=key, max_tokens=MAX_TOKENS, temperature=0,
        max_batch_size=1_000, timeout=600,
    )
    lotus.settings.configure(lm=served)

    def run(rows):
        table = pandas.DataFrame({"text": rows})
        return list(table.sem_map("Label this review in one word, good, bad or mixed: {text}")["_map"])

    return run


CLIENTS = {
    "asyncio": with_asyncio,
    "langchain": with_langchain,
    "daft": with_daft,
    "ray": with_ray,
    "lotus": with_lotus,
}


def loop(client, address, key, rows, model, ready, said):
    try:
        run = CLIENTS[client](address, key, model)
        # The client's own first call is its slowest; and what all loops share is computed then, whoever is first.
        run(texts(rows + 1)[rows:])
    except BaseException:
        # The others do not wait for it.
        ready.abort()
        raise
    ready.wait()
    began = time.monotonic()
    answers = run(texts(rows))
    seconds = round(time.monotonic() - began, 3)
    said.put({"rows": rows, "seconds": seconds, "answers": sum(isinstance(text, str) for text in answers)})


def got(address, path, key):
    asked = urllib.request.Request(f"{address}{path}", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(asked) as reply:
        return reply.read().decode()


def joined(address, key):
    """How many requests have joined another's relQuery."""
    name = "relserve_rows_coalesced_total "
    lines = got(address, "/metrics", key).splitlines()
    return sum(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))


def main():
    address, client, *loops = sys.argv[1:]
    if client not in CLIENTS or not loops:
        sys.exit(__doc__)
    first_key = loops[0].split("=", 1)[1]
    model = json.loads(got(address, "/v1/models", first_key))["data"][0]["id"]
    if client == "ray":
        start_ray(len(loops))
    context = multiprocessing.get_context("spawn")
    ready, said = context.Barrier(len(loops), timeout=300), context.Queue()
    started = []
    for given in loops:
        rows, key = given.split("=", 1)
        process = context.Process(target=loop, args=(client, address, key, int(rows), model, ready, said))
        process.start()
        started.append(process)
    found = []
    while len(found) < len(started):
        try:
            found.append(said.get(timeout=5))
        except queue.Empty:
            # Who has failed says nothing more, and the others do not wait for it.
            if any(process.exitcode for process in started):
                ready.abort()
                break
    for process in started:
        process.join()
    for one in sorted(found, key=lambda one: one["rows"]):
        print(json.dumps(one))
    print(json.dumps({"joined": joined(address, first_key)}))
    if len(found) < len(started) or any(one["answers"] != one["rows"] for one in found):
        sys.exit("a row has no answer")


if __name__ == "__main__":
    main()
