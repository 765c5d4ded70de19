{{ config(materialized='table') }}
select id, ai_sentiment(review) as label from {{ source('files', 'reviews') }}
