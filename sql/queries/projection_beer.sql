-- T2, LLM projection over Beer.
SELECT ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields, provide an high-level overview on the beer and review in a 20 words paragraph.

Given the following data:
{*}', b.*), max_tokens => 38) AS answer
FROM beer AS b;
