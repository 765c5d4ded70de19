-- T2, LLM projection over Movies.
SELECT ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given information including movie descriptions and critic reviews, summarize the good qualities in this movie that led to a favorable rating.

Given the following data:
{*}', m.*), max_tokens => 29) AS answer
FROM movies AS m;
