-- T1, LLM filter over Beer: beers of European origin.
SELECT b."beer/name"
FROM beer AS b
WHERE ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Based on the beer descriptions, does this beer have European origin? Answer ''YES'' if it does or ''NO'' if it doesn''t.

Given the following data:
{*}', b.*), ['YES', 'NO']) = 'YES';
