-- T1, LLM filter over Movies: reviews of films suitable for kids.
SELECT m.rotten_tomatoes_link
FROM movies AS m
WHERE ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields, answer in one word, ''Yes'' or ''No'', whether the movie would be suitable for kids. Answer with ONLY ''Yes'' or ''No''.

Given the following data:
{*}', m.*), ['Yes', 'No']) = 'Yes';
