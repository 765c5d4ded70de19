-- T1, LLM filter over Products: products praised in the review.
SELECT p.id
FROM products AS p
WHERE ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields determine if the review speaks positively (''POSITIVE''), negatively (''NEGATIVE''), or neutral (''NEUTRAL'') about the product. Answer only ''POSITIVE'', ''NEGATIVE'', or ''NEUTRAL'', nothing else.

Given the following data:
{*}', p.*), ['POSITIVE', 'NEGATIVE', 'NEUTRAL']) = 'POSITIVE';
