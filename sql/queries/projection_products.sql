-- T2, LLM projection over Products.
SELECT ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields related to amazon products, summarize the product, then answer whether the product description is consistent with the quality expressed in the review.

Given the following data:
{*}', p.*), max_tokens => 107) AS answer
FROM products AS p;
