-- T5, retrieval-augmented generation over FEVER: four pieces of evidence of the corpus `fever` for each claim.
SELECT c.claim, ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
You are given 4 pieces of evidence as {{evidence1}}, {{evidence2}}, {{evidence3}}, and {{evidence4}}. You are also given a claim as {{claim}}. Answer SUPPORTS if the pieces of evidence support the given {{claim}}, REFUTES if the evidence refutes the given {{claim}}, or NOT ENOUGH INFO if there is not enough information to answer. Your answer should just be SUPPORTS, REFUTES, or NOT ENOUGH INFO and nothing else.

Given the following data:
{*}', c.*), ['SUPPORTS', 'REFUTES', 'NOT ENOUGH INFO']) AS verdict
FROM (
    SELECT claim, texts[1] AS evidence1, texts[2] AS evidence2, texts[3] AS evidence3, texts[4] AS evidence4
    FROM (SELECT claim, ai_retrieve(claim, 'fever', 4) AS texts FROM fever) AS found
) AS c;
