"""What the shop sells. A price is looked up when an order is made, and its events keep what it was then."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from .rules import RuleBroken

__all__ = ["PRODUCTS", "Product", "price_of"]


@attrs.frozen
class Product:
    name: str
    price: int


PRODUCTS: Mapping[str, Product] = {
    "tea-100": Product("Green tea, 100 g", 1250),
    "cup": Product("Cup", 900),
    "pot": Product("Teapot", 3400),
    "strainer": Product("Strainer", 650),
}
"""By id. A stand-in for a service of its own. Prices are in cents."""


def price_of(product_id: str) -> int:
    """Return the price now.

    Raises:
        RuleBroken: there is no such product.
    """
    product = PRODUCTS.get(product_id)
    if product is None:
        raise RuleBroken("no_product", "there is no such product in the catalogue")
    return product.price
