-- T2, LLM projection over BIRD (posts and comments).
SELECT ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields related to posts in an online codebase community, summarize how the comment Text related to the post body.

Given the following data:
{*}', b.*), max_tokens => 43) AS answer
FROM bird AS b;
