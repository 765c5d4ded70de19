-- T1, LLM filter over PDMX (sheet music): songs that refer to a specific person.
SELECT s.*
FROM pdmx AS s
WHERE ai_classify(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Based on following fields, answer ''YES'' or ''NO'' if any of the song information references a specific individual. Answer only ''YES'' or ''NO'', nothing else.

Given the following data:
{*}', s.*), ['YES', 'NO']) = 'YES';
