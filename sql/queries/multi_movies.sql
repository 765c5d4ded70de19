-- T3, two LLM invocations over Movies: only rows whose first answer is NEGATIVE are asked about again.
SELECT ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given information including movie descriptions and critic reviews, summarize the good qualities in this movie that led to a favorable rating.

Given the following data:
{*}', m.*), max_tokens => 29) AS answer
FROM movies AS m
WHERE ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following review, answer whether the sentiment associated is ''POSITIVE'' or ''NEGATIVE''. Answer in all caps with ONLY ''POSITIVE'' or ''NEGATIVE'':

Given the following data:
{*}', m.review_content), ['POSITIVE', 'NEGATIVE']) = 'NEGATIVE';
