"""The official Python client against a running server, as its users would call it.

Needs RELSERVE_BASE_URL (ending in /v1) and RELSERVE_API_KEY; run.sh starts a server and sets them.
No test judges what the model says, only that the API keeps its promises about it.
"""

import asyncio
import json
import os
import time
import unittest

import openai

BASE_URL = os.environ["RELSERVE_BASE_URL"]
API_KEY = os.environ["RELSERVE_API_KEY"]
MESSAGES = [
    {"role": "system", "content": "Answer with one word."},
    {"role": "user", "content": "Is this review positive or negative? I loved every minute of it."},
]


def client(key=API_KEY):
    """A client that shows every error at once."""
    return openai.OpenAI(base_url=BASE_URL, api_key=key, max_retries=0, timeout=60)


class Case(unittest.TestCase):
    """What all tests need: a client and the name of the served model."""

    @classmethod
    def setUpClass(cls):
        cls.client = client()
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **changes):
        """A short greedy chat; `changes` replace or add arguments."""
        arguments = {"model": self.model, "messages": MESSAGES, "temperature": 0, "max_tokens": 8}
        return self.client.chat.completions.create(**(arguments | changes))

    def complete(self, prompt, **changes):
        """A short greedy completion."""
        arguments = {"model": self.model, "prompt": prompt, "temperature": 0, "max_tokens": 8}
        return self.client.completions.create(**(arguments | changes))

    def assert_usage_adds_up(self, usage):
        """The three counts agree and no more is cached than was sent."""
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLessEqual(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens)


class Models(Case):
    def test_the_served_model_is_listed_and_found_by_name(self):
        found = self.client.models.retrieve(self.model)
        self.assertEqual((found.id, found.object), (self.model, "model"))
        self.assertGreater(found.created, 0)

    def test_another_model_is_not_found(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("no-such-model")
        self.assertEqual(caught.exception.code, "model_not_found")


class Chat(Case):
    def test_a_chat_is_answered_with_its_usage(self):
        reply = self.chat()
        self.assertEqual((reply.object, reply.model), ("chat.completion", self.model))
        self.assertEqual(len(reply.choices), 1)
        self.assertEqual(reply.choices[0].message.role, "assistant")
        self.assertIn(reply.choices[0].finish_reason, ("stop", "length"))
        self.assertLessEqual(reply.usage.completion_tokens, 8)
        self.assert_usage_adds_up(reply.usage)

    def test_a_greedy_chat_is_answered_the_same_each_time(self):
        self.assertEqual(self.chat().choices[0].message.content, self.chat().choices[0].message.content)

    def test_a_seed_makes_a_warm_chat_repeatable(self):
        first, second = (self.chat(temperature=1.5, seed=7, max_tokens=16) for _ in range(2))
        self.assertEqual(first.choices[0].message.content, second.choices[0].message.content)

    def test_the_output_limit_is_kept_to_the_token(self):
        reply = self.chat(max_tokens=5, extra_body={"ignore_eos": True})
        self.assertEqual((reply.usage.completion_tokens, reply.choices[0].finish_reason), (5, "length"))
        reply = self.chat(
            max_tokens=openai.omit, max_completion_tokens=3, extra_body={"ignore_eos": True}
        )
        self.assertEqual(reply.usage.completion_tokens, 3)

    def test_text_parts_are_one_text(self):
        text = MESSAGES[1]["content"]
        parts = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]
        split = self.chat(messages=[MESSAGES[0], {"role": "user", "content": parts}])
        self.assertEqual(split.usage.prompt_tokens, self.chat().usage.prompt_tokens)

    def test_tokens_come_with_their_log_probabilities(self):
        choice = self.chat(logprobs=True, top_logprobs=2).choices[0]
        tokens = choice.logprobs.content
        said = b"".join(bytes(token.bytes) for token in tokens).decode(errors="replace")
        self.assertEqual(said.strip(), choice.message.content.strip())
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            # Greedy takes the likeliest.
            self.assertEqual((token.top_logprobs[0].token, token.top_logprobs[0].logprob), (token.token, token.logprob))

    def test_a_stream_says_what_the_reply_says_and_ends_with_usage(self):
        whole = self.chat()
        text, reasons, usages, roles = "", [], [], []
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            self.assertEqual(chunk.object, "chat.completion.chunk")
            usages.append(chunk.usage)
            for choice in chunk.choices:
                text += choice.delta.content or ""
                roles.append(choice.delta.role)
                reasons.append(choice.finish_reason)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(roles[0], "assistant")
        self.assertEqual([reason for reason in reasons if reason], [whole.choices[0].finish_reason])
        self.assertEqual(reasons[-1], whole.choices[0].finish_reason)
        self.assertTrue(all(usage is None for usage in usages[:-1]))
        self.assertEqual(usages[-1].total_tokens, whole.usage.total_tokens)
        self.assert_usage_adds_up(usages[-1])

    def test_a_stream_without_the_wish_has_no_usage(self):
        chunks = list(self.chat(stream=True))
        self.assertTrue(all(chunk.usage is None and chunk.choices for chunk in chunks))

    def test_many_streams_at_once_say_what_each_says_alone(self):
        questions = [f"Is the number {n} odd or even?" for n in range(8)]
        alone = [self.chat(messages=[{"role": "user", "content": q}]).choices[0] for q in questions]

        async def one(asynchronous, question):
            messages = [{"role": "user", "content": question}]
            stream = await asynchronous.chat.completions.create(
                model=self.model, messages=messages, temperature=0, max_tokens=8, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async def all_at_once():
            async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0) as many:
                return await asyncio.gather(*(one(many, question) for question in questions))

        self.assertEqual(asyncio.run(all_at_once()), [choice.message.content for choice in alone])

    def test_every_documented_parameter_is_taken_and_none_is_left_out(self):
        reply = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=MESSAGES, temperature=0, top_p=1, max_completion_tokens=8, n=1, seed=3,
            stop=["\n\n\n"], frequency_penalty=0.1, presence_penalty=0.1, logit_bias={"5": -1}, logprobs=True,
            top_logprobs=1, metadata={"team": "x"}, modalities=["text"], parallel_tool_calls=False,
            prediction={"type": "content", "content": "positive"}, prompt_cache_key="k", reasoning_effort="low",
            response_format={"type": "text"}, safety_identifier="s", service_tier="auto", store=False,
            tool_choice="none", user="u", verbosity="low",
        )
        self.assertNotIn("x-relserve-ignored-fields", reply.headers)
        self.assertEqual(len(reply.parse().choices), 1)

    def test_a_client_that_leaves_a_stream_early_leaves_the_server_well(self):
        with self.chat(stream=True, max_tokens=64, extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        self.assertEqual(len(self.chat().choices), 1)


class Completions(Case):
    def test_a_prompt_is_completed_with_its_usage(self):
        reply = self.complete("Once upon a time")
        self.assertEqual(reply.object, "text_completion")
        self.assertIn(reply.choices[0].finish_reason, ("stop", "length"))
        self.assert_usage_adds_up(reply.usage)

    def test_several_prompts_are_answered_in_their_order(self):
        prompts = ["One, two,", "A, B,", "One, two,"]
        together = self.complete(prompts)
        alone = [self.complete(prompt).choices[0].text for prompt in prompts]
        self.assertEqual([choice.index for choice in together.choices], [0, 1, 2])
        self.assertEqual([choice.text for choice in together.choices], alone)

    def test_a_prompt_of_tokens_is_taken_as_it_is(self):
        reply = self.complete([1, 2, 3, 4])
        self.assertEqual(reply.usage.prompt_tokens, 4)

    def test_a_stream_of_several_prompts_says_what_the_reply_says(self):
        prompts = ["One, two,", "A, B,"]
        texts = {0: "", 1: ""}
        for chunk in self.complete(prompts, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        self.assertEqual(list(texts.values()), [choice.text for choice in self.complete(prompts).choices])


class Constraints(Case):
    def test_an_answer_fits_its_json_schema(self):
        labels = ["positive", "negative"]
        schema = {
            "type": "object",
            "properties": {"label": {"enum": labels}},
            "required": ["label"],
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "label", "strict": True, "schema": schema}}
        reply = self.chat(response_format=form, max_tokens=40)
        self.assertIn(json.loads(reply.choices[0].message.content)["label"], labels)

    def test_an_answer_is_one_of_the_choices(self):
        labels = ["good", "good enough"]
        reply = self.chat(extra_body={"guided_choice": labels}, max_tokens=40)
        self.assertIn(reply.choices[0].message.content, labels)
        self.assertEqual(reply.choices[0].finish_reason, "stop")


class Batches(Case):
    def upload(self, *requests, path="/v1/chat/completions"):
        """A file with a line for each request: a name and what its body has beside the model."""
        lines = [
            {"custom_id": name, "method": "POST", "url": path, "body": {"model": self.model} | body}
            for name, body in requests
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return self.client.files.create(file=("in.jsonl", text.encode()), purpose="batch")

    def create(self, file, **changes):
        """A batch of chats out of a file."""
        arguments = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return self.client.batches.create(input_file_id=file.id, **(arguments | changes))

    def over(self, batch):
        """The batch once it is over."""
        deadline = time.monotonic() + 60
        while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
            self.assertLess(time.monotonic(), deadline, batch)
            time.sleep(0.02)
            batch = self.client.batches.retrieve(batch.id)
        return batch

    def test_a_file_comes_back_as_it_was_sent(self):
        file = self.upload(("a", {"messages": MESSAGES}))
        self.assertEqual((file.object, file.purpose, file.filename), ("file", "batch", "in.jsonl"))
        text = self.client.files.content(file.id).text
        self.assertEqual((json.loads(text)["custom_id"], len(text.encode())), ("a", file.bytes))
        self.assertEqual(self.client.files.retrieve(file.id).bytes, file.bytes)
        self.assertIn(file.id, [one.id for one in self.client.files.list(purpose="batch", limit=1)])
        self.assertTrue(self.client.files.delete(file.id).deleted)
        with self.assertRaises(openai.NotFoundError):
            self.client.files.content(file.id)

    def test_a_batch_says_what_single_calls_say(self):
        body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 8}
        file = self.upload(("a", body), ("b", body | {"temperature": 3}), ("c", body))
        batch = self.over(self.create(file, metadata={"job": "test"}))
        self.assertEqual((batch.object, batch.status, batch.metadata), ("batch", "completed", {"job": "test"}))
        counts = batch.request_counts
        self.assertEqual((counts.total, counts.completed, counts.failed), (3, 2, 1))
        answers = [json.loads(line) for line in self.client.files.content(batch.output_file_id).text.splitlines()]
        self.assertEqual([answer["custom_id"] for answer in answers], ["a", "c"])
        spent = sum(answer["response"]["body"]["usage"]["total_tokens"] for answer in answers)
        self.assertEqual(batch.usage.total_tokens, spent)
        content = self.chat().choices[0].message.content
        for answer in answers:
            self.assertEqual(answer["response"]["status_code"], 200)
            reply = openai.types.chat.ChatCompletion.model_validate(answer["response"]["body"])
            self.assertEqual(reply.choices[0].message.content, content)
            self.assert_usage_adds_up(reply.usage)
        failed = json.loads(self.client.files.content(batch.error_file_id).text)
        self.assertEqual((failed["custom_id"], failed["response"]["status_code"]), ("b", 400))
        self.assertEqual(failed["response"]["body"]["error"]["param"], "temperature")

    def test_completions_run_in_batches_too(self):
        file = self.upload(("a", {"prompt": "Once", "max_tokens": 4}), path="/v1/completions")
        batch = self.over(self.create(file, endpoint="/v1/completions"))
        answer = json.loads(self.client.files.content(batch.output_file_id).text)
        self.assertEqual(answer["response"]["body"]["object"], "text_completion")

    def test_a_name_that_stands_twice_fails_the_batch(self):
        body = {"messages": MESSAGES}
        batch = self.over(self.create(self.upload(("a", body), ("b", body), ("a", body))))
        self.assertEqual(batch.status, "failed")
        error = batch.errors.data[0]
        self.assertEqual((error.code, error.line, error.param), ("duplicate_custom_id", 3, "custom_id"))

    def test_batches_are_listed_page_by_page_and_can_be_cancelled(self):
        file = self.upload(("a", {"messages": MESSAGES, "max_tokens": 2}))
        made = [self.create(file).id for _ in range(3)]
        for one in made:
            self.assertIn(self.client.batches.cancel(one).status, ("cancelling", "cancelled", "completed"))
        listed = [batch.id for batch in self.client.batches.list(limit=2)]
        self.assertLessEqual(set(made), set(listed))
        self.assertEqual(len(listed), len(set(listed)))
        for one in made:
            self.assertIn(self.over(self.client.batches.retrieve(one)).status, ("cancelled", "completed"))

    def test_a_bad_batch_is_refused_by_field(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.batches.create(
                input_file_id="file-none", endpoint="/v1/chat/completions", completion_window="24h"
            )
        self.assertEqual(caught.exception.param, "input_file_id")


class Responses(Case):
    """OpenAI's newer API."""

    def test_a_response_and_its_events(self):
        response = self.client.responses.create(model=self.model, input="Say something.", max_output_tokens=4)
        self.assertIn(response.status, ("completed", "incomplete"))
        self.assertEqual(response.output_text, response.output[0].content[0].text)
        self.assertGreater(response.usage.input_tokens, 0)
        with self.client.responses.stream(model=self.model, input="Say something.", max_output_tokens=4) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        self.assertEqual("".join(deltas), final.output_text)

    def test_every_documented_parameter_of_a_response_is_taken_and_repeated(self):
        reply = self.client.responses.with_raw_response.create(
            model=self.model, input="Say something.", instructions="Be brief.", max_output_tokens=4, max_tool_calls=1,
            include=["message.output_text.logprobs"], metadata={"team": "x"}, parallel_tool_calls=False,
            prompt_cache_key="k", reasoning={"effort": "low"}, safety_identifier="s", service_tier="auto", store=False,
            temperature=0, text={"format": {"type": "text"}, "verbosity": "low"}, tool_choice="auto", top_logprobs=2,
            top_p=1, truncation="auto", user="u",
        )
        self.assertNotIn("x-relserve-ignored-fields", reply.headers)
        response = reply.parse()
        self.assertEqual((response.truncation, response.reasoning.effort), ("auto", "low"))
        self.assertEqual((response.top_logprobs, response.max_tool_calls, response.user), (2, 1, "u"))
        self.assertEqual((response.service_tier, response.parallel_tool_calls), ("default", False))

    def test_a_response_in_the_background_is_streamed_and_told_again(self):
        ask = {"model": self.model, "input": "Say something.", "max_output_tokens": 4, "background": True}
        with self.client.responses.create(stream=True, **ask) as stream:
            first = next(iter(stream))
        self.assertEqual((first.type, first.sequence_number), ("response.created", 0))
        id = first.response.id
        events = list(self.client.responses.retrieve(id, stream=True, starting_after=0))
        self.assertEqual([event.sequence_number for event in events], list(range(1, len(events) + 1)))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), events[-1].response.output_text)
        again = list(self.client.responses.retrieve(id, stream=True, starting_after=events[0].sequence_number))
        self.assertEqual(again, events[1:])

    def test_a_response_goes_on_from_one_that_is_kept(self):
        ask = {"model": self.model, "max_output_tokens": 4}
        first = self.client.responses.create(input="Say something.", **ask)
        second = self.client.responses.create(input="And?", previous_response_id=first.id, **ask)
        self.assertEqual(second.previous_response_id, first.id)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens)
        self.assertEqual(self.client.responses.retrieve(second.id).output_text, second.output_text)
        said = [item.content[0].text for item in self.client.responses.input_items.list(second.id, order="asc")]
        self.assertEqual(said, ["Say something.", first.output_text, "And?"])
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.create(input="And?", previous_response_id=first.id, **ask)
        unkept = self.client.responses.create(input="Say something.", store=False, **ask)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(unkept.id)


class Errors(Case):
    def refused(self, kind, param, call, **changes):
        """The call fails with this class of error, blaming this field."""
        with self.assertRaises(kind) as caught:
            call(**changes)
        self.assertEqual(caught.exception.param, param)
        self.assertTrue(caught.exception.message)
        return caught.exception

    def test_a_wrong_key_is_refused(self):
        with self.assertRaises(openai.AuthenticationError) as caught:
            client("rs-wrong").models.list()
        self.assertEqual(caught.exception.code, "invalid_api_key")

    def test_an_unknown_model_is_not_found(self):
        error = self.refused(openai.NotFoundError, "model", self.chat, model="gpt-4o")
        self.assertEqual(error.code, "model_not_found")

    def test_a_bad_field_is_named(self):
        bad = openai.BadRequestError
        self.refused(bad, "temperature", self.chat, temperature=3)
        self.refused(bad, "top_p", self.chat, top_p=0)
        self.refused(bad, "n", self.chat, n=0)
        self.refused(bad, "max_tokens", self.chat, max_tokens=0)
        self.refused(bad, "messages", self.chat, messages=[])
        self.refused(bad, "messages[0].role", self.chat, messages=[{"role": "x", "content": "a"}])
        self.refused(bad, "response_format.type", self.chat, response_format={"type": "grammar"})
        self.refused(bad, "guided_regex", self.chat, extra_body={"guided_regex": "("})
        self.refused(bad, "prompt", self.complete, prompt="")
        self.refused(bad, "prompt", self.complete, prompt=[1, 10**9])

    def test_a_bad_field_is_refused_before_a_stream_begins(self):
        self.refused(openai.BadRequestError, "temperature", self.chat, temperature=-1, stream=True)

    def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(self):
        limit = self.client.models.retrieve(self.model).model_extra["max_model_len"]
        error = self.refused(openai.BadRequestError, "max_tokens", self.complete, prompt=[1] * limit)
        self.assertEqual(error.code, "context_length_exceeded")
        self.assertIn(str(limit), error.message)
        self.assertIn("8 output", error.message)


if __name__ == "__main__":
    unittest.main()
