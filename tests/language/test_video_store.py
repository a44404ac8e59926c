"""A video store's mapping, made like Pagila's: every warning that `mapping check` gives of it is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.language.conftest import database_on
from tests.language.context import checked

TABLES = """
CREATE TABLE film (film_id INTEGER PRIMARY KEY, title VARCHAR(128) NOT NULL, released TIMESTAMP NOT NULL, rental_rate NUMERIC(4,2));
CREATE TABLE customer (customer_id INTEGER PRIMARY KEY, last_name VARCHAR(45) NOT NULL, email VARCHAR(50));
CREATE TABLE inventory (inventory_id INTEGER PRIMARY KEY, film_id INTEGER NOT NULL REFERENCES film);
CREATE TABLE rental (rental_id INTEGER PRIMARY KEY, rented TIMESTAMP NOT NULL, inventory_id INTEGER NOT NULL REFERENCES inventory,
  customer_id INTEGER NOT NULL REFERENCES customer, UNIQUE (rented, customer_id));
"""
MAPPING = """
mapping: 1
table:
  name: Store
  key: [PK, SK]
  type: type
  ttl: expires
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}
    GSI2: {key: [GSI2PK, GSI2SK]}
entities:
  film:
    items:
      Film:
        key: ["FILM#{film_id:06}", FILM]
        GSI1: ["FILMS#{film_id|shard:10}", "{released}#{film_id:06}"]
        keep: [title]
      FilmByTitle:
        key: ["TITLE#{title}", "FILM#{film_id:06}"]
        keep: [title]
  inventory:
    items:
      Inventory:
        key: ["FILM#{film_id:06}", "INVENTORY#{inventory_id:06}"]
        keep: [inventory_id]
  customer:
    items:
      Customer:
        key: ["CUSTOMER#{customer_id:06}", CUSTOMER]
        GSI1: ["EMAIL#{email|hash}", CUSTOMER]
        GSI2: ["CUSTOMERS", "{last_name}#{customer_id:06}"]
        keep: [last_name]
  rental:
    items:
      Rental:
        key: ["CUSTOMER#{customer_id:06}", "RENTAL#{rented|iso}"]
        keep: [rental_id]
access_patterns:
  film_by_id:
    params: {id: integer}
    query: {key: ["FILM#{id:06}", {lt: "INVENTORY#"}]}
    returns: [title]
    sql: SELECT title FROM film WHERE film_id = :id
  inventory_of_film:
    params: {id: integer}
    query: {key: ["FILM#{id:06}", {between: ["INVENTORY#", "INVENTORY#~"]}]}
    returns: [inventory_id]
    order: exact
    sql: SELECT inventory_id FROM inventory WHERE film_id = :id ORDER BY inventory_id
  newest_films:
    params: {}
    query: {index: GSI1, key: ["FILMS#{*|shard:10}"], descending: true}
    returns: [title]
    order: exact
    sql: SELECT title FROM film ORDER BY released DESC, film_id DESC
  films_of_shard:
    params: {id: integer, since: timestamp}
    query: {index: GSI1, key: ["FILMS#{id|shard:10}", {begins_with: "{since|iso:s}"}]}
    returns: [title]
    sql: SELECT title FROM film WHERE film_id = :id
  rentals_since:
    params: {id: integer, since: timestamp}
    query: {key: ["CUSTOMER#{id:06}", {begins_with: "RENTAL#{since|iso}"}]}
    returns: [rental_id]
    sql: SELECT rental_id FROM rental WHERE customer_id = :id AND rented = :since
  customers_by_name:
    params: {}
    query: {index: GSI2, key: [CUSTOMERS]}
    returns: [last_name]
    order: exact
    sql: SELECT last_name FROM customer ORDER BY last_name, customer_id
  film_of_title:
    params: {title: text}
    query: {key: ["TITLE#{title}", {begins_with: "FILM#"}]}
    returns: [title]
    order: exact
    sql: SELECT title FROM film WHERE title = :title ORDER BY film_id
"""


@pytest.mark.postgres
def test_every_warning_of_a_video_store_is_true(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = database_on("postgresql", request, tmp_path)(TABLES)
    (warning,) = checked(url, MAPPING).warnings
    # "Ng" and "Ng Tran": the space comes before '#'.
    assert warning.where == "access_patterns.customers_by_name.order"
    assert pins.said(warning.what)
