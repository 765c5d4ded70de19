{{ config(materialized='view') }}
select id, review from {{ source('files', 'reviews') }} where stars > 3
