"""Texts with names, places, dates, amounts and the like, and the extract, format and fill tasks on them."""

import random
from datetime import date, timedelta

import words
from prompts import cell
from sentiment import Example

# What a field is called in a question; the first is the plainest.
FIELDS = {
    "person": ["the name", "name", "the person", "person name", "the customer's name", "who", "the name of the person"],
    "place": ["the place", "city", "the city", "location", "place", "where"],
    "date": ["the date", "date", "when"],
    "price": ["the price", "price", "amount", "the amount", "cost"],
    "email": ["the email", "email", "email address", "the email address"],
    "phone": ["the phone number", "phone", "phone number", "telephone number"],
    "product": ["the product", "product", "product name", "item", "the item"],
    "company": ["the company", "company", "company name", "organization"],
    "order": ["the order number", "order number", "order id", "the order"],
    "number": ["the number", "number", "quantity", "how many"],
    "time": ["the time", "time", "time of day"],
}

SENTENCES = [line.strip() for line in """
{person} ordered a {product} on {date}.
Please send the {product} to {person} in {place}.
My name is {person} and my email is {email}.
You can reach {person} at {phone}.
Call me at {phone} or write to {email}.
The {product} costs {price}.
I paid {price} for the {product}.
{person} from {company} will visit {place} on {date}.
{company} opened an office in {place}.
Order {order} was shipped on {date}.
My order number is {order}.
I bought {number} units of the {product}.
The meeting is on {date} at {time}.
We moved to {place} on {date}.
{person} works for {company}.
Contact {email} for details.
The flight to {place} leaves at {time}.
{company} sold {number} items for {price}.
{person} lives in {place}.
Invoice for {person}: {price}, due {date}.
Hello, this is {person}, my {product} arrived broken.
The bill of {company} is {price}.
{person}, {phone}, {place}
{number} people came to the concert in {place}.
Dinner with {person} at {time}.
{company} hired {person} on {date}.
The {product} was made by {company}.
Order {order}: {number} pieces, {price}.
""".strip().splitlines()]

NO_FIELD = ["Nothing to report today.", "It was a quiet week.", "Thanks for the quick help.", "The weather was nice.", "I really liked it.", "See you soon."]


def nonsense(rng: random.Random) -> str:
    """A made-up name: copying must not depend on known words."""
    return "".join(rng.choice("bcdfghklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.choice([2, 2, 3]))).capitalize() + rng.choice(["", "n", "s", "r", "l"])


def day(rng: random.Random) -> date:
    return date(2015, 1, 1) + timedelta(days=rng.randrange(4500))


def date_text(d: date, rng: random.Random) -> str:
    month = words.MONTHS[d.month - 1]
    return rng.choice([f"{month} {d.day}, {d.year}", f"{d.day} {month} {d.year}", d.isoformat(), f"{d.day:02}/{d.month:02}/{d.year}",
                       f"{month} {d.day}", f"{month[:3]} {d.day}"])


def value(field: str, rng: random.Random) -> str:
    """A random value of a field."""
    first = rng.choice(words.FIRST) if rng.random() < 0.6 else nonsense(rng)
    last = rng.choice(words.LAST) if rng.random() < 0.6 else nonsense(rng)
    if field == "person":
        return rng.choice([f"{first} {last}", f"{first} {last}", first])
    if field == "place":
        return rng.choice(words.PLACES) if rng.random() < 0.7 else nonsense(rng)
    if field == "date":
        return date_text(day(rng), rng)
    if field == "price":
        amount = rng.choice([f"{rng.randint(1, 999)}", f"{rng.randint(1, 99)}.{rng.randint(0, 99):02}", f"{rng.randint(1, 99)},{rng.randint(0, 999):03}"])
        return rng.choice([f"${amount}", f"${amount}", f"{amount} euros", f"{amount} dollars", f"{amount} USD"])
    if field == "email":
        user = rng.choice([first.lower(), f"{first}.{last}".lower(), f"{last}{rng.randint(1, 99)}".lower(), "info", "support"])
        host = rng.choice(["example", "mail", nonsense(rng).lower(), rng.choice(words.COMPANIES).lower().replace(" ", "")])
        return f"{user}@{host}.{rng.choice(['com', 'org', 'net', 'io', 'de'])}"
    if field == "phone":
        a, b, c = rng.randint(200, 999), rng.randint(100, 999), rng.randint(1000, 9999)
        return rng.choice([f"{a}-{b}-{c}", f"({a}) {b}-{c}", f"+1 {a} {b} {c}", f"{a} {b} {c}", f"{b}-{c}"])
    if field == "product":
        return rng.choice(words.PRODUCTS)
    if field == "company":
        return " ".join(part for part in (rng.choice(words.COMPANIES) if rng.random() < 0.7 else nonsense(rng), rng.choice(words.COMPANY_ENDS)) if part)
    if field == "order":
        return rng.choice([f"#{rng.randint(100, 99999)}", f"{rng.choice('ABCDEFGHKX')}{rng.randint(100, 9999)}", f"{rng.randint(10000, 999999)}"])
    if field == "time":
        return rng.choice([f"{rng.randint(1, 12)} {rng.choice(['am', 'pm'])}", f"{rng.randint(0, 23)}:{rng.choice(['00', '15', '30', '45'])}"])
    return str(rng.choice([rng.randint(2, 20), rng.randint(2, 500), rng.randint(2, 9000)]))


def extract(rng: random.Random) -> Example:
    """Asks for one field of a text that has several; `none` where it has not."""
    values = {field: value(field, rng) for field in FIELDS}
    chosen = rng.sample(SENTENCES, rng.choice([1, 1, 2]))
    if rng.random() < 0.25:
        chosen.insert(rng.randint(0, len(chosen)), rng.choice(NO_FIELD))
    text = " ".join(chosen)
    present = [field for field in FIELDS if "{" + field + "}" in text]
    # A text with a company or a person twice over would be ambiguous; the same value stands in both places.
    absent = rng.random() < 0.12
    field = rng.choice([f for f in FIELDS if f not in present] if absent else present)
    for name, filled in values.items():
        text = text.replace("{" + name + "}", filled)
    answer = "none" if absent else values[field]
    what = rng.choice(FIELDS[field])
    form = rng.random()
    if form < 0.6:
        prompt = cell("extract", text=text, what=what)
    elif form < 0.75:
        prompt = cell("ask", prompt=f"What is {what if what.startswith('the') else 'the ' + what}?", context=text)
    else:
        prompt = rng.choice(["Extract {w} from: {t}", "{t}\n\nExtract {w}:", "Find {w} in the text. {t}", "{t}\n{w}?"]).replace("{w}", what).replace("{t}", text)
    if what in ("who", "where", "when", "how many") and form >= 0.6:
        prompt = cell("ask", prompt=what.capitalize() + "?", context=text)
    return Example("extract", prompt, answer)


def reformat(rng: random.Random) -> Example:
    """A few fixed formats: dates, case, plain numbers."""
    kind = rng.randrange(3)
    if kind == 0:
        d = day(rng)
        month = words.MONTHS[d.month - 1]
        shown = rng.choice([f"{month} {d.day}, {d.year}", f"{d.day} {month} {d.year}", f"{month[:3]} {d.day} {d.year}"])
        return Example("format", cell("format", target=rng.choice(["YYYY-MM-DD", "ISO date", "yyyy-mm-dd"]), text=shown), d.isoformat())
    if kind == 1:
        word = rng.choice(words.FIRST + words.PLACES + words.PRODUCTS + words.COMPANIES)
        target = rng.choice(["upper case", "lower case", "UPPERCASE", "lowercase"])
        return Example("format", cell("format", target=target, text=word), word.upper() if target.lower().startswith("upper") else word.lower())
    whole = rng.randint(1, 99999)
    return Example("format", cell("format", target=rng.choice(["plain number", "number", "number without symbols"]),
                                  text=rng.choice(["${:,}", "{:,} USD", "{:,} euros"]).format(whole)), str(whole))


def fill(rng: random.Random) -> Example:
    """A column continued: first or last name, place, domain of an email, word to its side."""
    kind = rng.randrange(4)
    rows = []
    for _ in range(rng.randint(3, 4)):
        first, last = rng.choice(words.FIRST), rng.choice(words.LAST)
        if kind == 0:
            rows.append((f"{first} {last}", last))
        elif kind == 1:
            rows.append((f"{first} {last}", first))
        elif kind == 2:
            rows.append((f"{last}, {first}", f"{first} {last}"))
        else:
            place = rng.choice(words.PLACES)
            rows.append((f"{first} from {place}", place))
    examples = "\n".join(f"{left} -> {right}" for left, right in rows[:-1])
    return Example("fill", cell("fill", examples=examples, input=rows[-1][0]), rows[-1][1])
