{{ config(materialized='incremental', unique_key='id') }}
select id, label from {{ ref('labelled') }}
{% if is_incremental() %} where id >= (select max(id) from {{ this }}) {% endif %}
