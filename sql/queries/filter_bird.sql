-- T1, LLM filter over BIRD (posts and comments): posts about statistics.
SELECT b."PostId"
FROM bird AS b
WHERE ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields related to posts in an online codebase community, answer whether the post is related to statistics. Answer with only ''YES'' or ''NO''.

Given the following data:
{*}', b.*), ['YES', 'NO']) = 'YES';
