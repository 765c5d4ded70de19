-- T2, LLM projection over PDMX (sheet music).
SELECT ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields, provide an overview on the music type, and analyze the given scores. Give exactly 50 words of summary.

Given the following data:
{*}', s.*), max_tokens => 72) AS answer
FROM pdmx AS s;
