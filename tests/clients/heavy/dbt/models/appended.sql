{{ config(materialized='incremental') }}
select shop, city from {{ ref('shops') }}
{% if is_incremental() %} where shop = 1 {% endif %}
