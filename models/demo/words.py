"""Vocabulary of the generated texts: domains with items and aspects, opinion words with their strength."""


def split(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]


# Domain: (what it is called, aspects that are judged).
DOMAINS = {name: (split(items), split(aspects)) for name, items, aspects in [
    ("film", "film, movie, thriller, comedy, drama, documentary, sequel, horror movie, romance, western, biopic, animation",
     "acting, plot, script, cast, soundtrack, ending, dialogue, pacing, story, direction, camera work, lead actress, humor"),
    ("beer", "beer, ale, lager, stout, porter, IPA, pilsner, wheat beer, cider, amber ale",
     "aroma, taste, finish, head, mouthfeel, carbonation, flavor, color, aftertaste, bitterness, smell, body"),
    ("restaurant", "restaurant, place, diner, bistro, cafe, pizzeria, steakhouse, bar, bakery, sushi place",
     "food, service, waiter, pasta, soup, dessert, atmosphere, menu, coffee, staff, burger, wine list, table, portions"),
    ("product", "phone, camera, laptop, vacuum, blender, headset, printer, keyboard, watch, charger, backpack, jacket, lamp, "
     "magazine, toaster, router, gift card, mattress, tent, shampoo",
     "battery, screen, build quality, sound, price, design, manual, packaging, fit, software, buttons, cable, material, delivery"),
    ("hotel", "hotel, hostel, resort, apartment, room, cabin, motel",
     "bed, bathroom, breakfast, view, location, reception, staff, pool, wifi, air conditioning, room, shower"),
    ("book", "book, novel, memoir, cookbook, guide, story, biography, magazine",
     "writing, characters, ending, chapters, plot, prose, cover, translation, pictures, recipes"),
    ("service", "support team, delivery, airline, bank, gym, course, dentist, mechanic, app, subscription, plumber, school",
     "response time, staff, communication, price, quality, advice, booking, instructor, website, checkout, billing"),
    ("music", "album, song, concert, band, record, show, single", "vocals, lyrics, guitar, drums, sound, mix, melody, stage, crowd"),
    ("game", "game, update, console, puzzle game, expansion", "graphics, controls, levels, story, multiplayer, difficulty, music, menus"),
]}

STRONG_GOOD = split("amazing, excellent, fantastic, outstanding, wonderful, brilliant, superb, perfect, incredible, stunning, "
                    "delicious, terrific, magnificent, flawless, exceptional, awesome, phenomenal, gorgeous, fabulous, marvelous, "
                    "spectacular, masterful, sublime, divine, unforgettable, top notch, first rate, world class, exquisite")
GOOD = split("good, great, nice, pleasant, solid, enjoyable, fun, lovely, smooth, fresh, friendly, helpful, clean, reliable, "
             "comfortable, charming, clever, tasty, impressive, refreshing, satisfying, entertaining, beautiful, fast, warm, crisp, "
             "well made, engaging, generous, attentive, funny, touching, rich, elegant, sturdy, polite, cozy, vivid, balanced, sweet")
MILD_GOOD = split("decent, fine, pretty good, quite nice, likable, fairly good, worth a try, better than expected, above average")
NEUTRAL = split("okay, average, ordinary, standard, so so, nothing special, acceptable, mediocre but usable, typical, passable, "
                "neither good nor bad, as expected, unremarkable, fair, middling, adequate, usual")
MILD_BAD = split("a bit dull, slightly disappointing, not great, rather plain, somewhat slow, below average, a little bland, lacking, weak, forgettable")
BAD = split("bad, poor, boring, bland, slow, dirty, noisy, rude, disappointing, dull, flat, cheap, stale, watery, broken, confusing, "
            "annoying, cold, greasy, overpriced, clumsy, lazy, predictable, uncomfortable, unreliable, flimsy, messy, tedious, sloppy, "
            "lifeless, unhelpful, burnt, tasteless, faulty, shallow, pointless, tired, soggy, sour, ugly")
STRONG_BAD = split("terrible, awful, horrible, disgusting, dreadful, atrocious, unbearable, worst, appalling, abysmal, pathetic, garbage, "
                   "useless, unwatchable, inedible, a disaster, a nightmare, a joke, a complete failure, laughably bad, rubbish, trash, vile, "
                   "a total waste of money, infuriating, insulting, painful")
BOOST = split("very, really, extremely, truly, absolutely, so, incredibly, totally, remarkably, super")
SOFT = split("a bit, somewhat, kind of, rather, slightly, fairly")

# Whole sentences with their score; {x} is the item.
OPINIONS = [(float(score), text.strip()) for score, text in (line.split("|") for line in """
3.0|I love this {x}!
3.0|Best {x} I have ever had.
2.8|I would give it ten stars if I could.
2.6|Highly recommended.
2.4|I will definitely come back.
2.2|Worth every penny.
2.4|I can't recommend this {x} enough.
2.0|I really enjoyed it.
1.8|It made my day.
1.8|It exceeded my expectations.
2.0|I was pleasantly surprised.
1.6|I would buy it again.
1.6|Thank you so much!
1.5|No complaints at all.
1.4|You can't go wrong with this {x}.
1.6|We had a great time.
1.3|It works just as described.
1.2|I liked it.
1.2|Glad I tried it.
2.0|It was hard to put down.
2.4|I was blown away.
1.0|It does the job well.
0.9|Not bad at all.
0.8|It has its flaws, but I liked it.
0.1|It is what it is.
0.0|It is a {x}.
0.0|I received the {x} on Monday.
0.0|There is not much to say about it.
0.0|I have no strong feelings about it.
0.1|It does what it says, nothing more.
0.0|Some people will like it, some will not.
-0.1|I expected a little more, but it is fine.
0.0|It arrived yesterday.
0.0|We ordered two of them.
0.0|The {x} comes in three sizes.
-0.8|It could have been better.
-0.9|I would not buy it again.
-1.0|It was not for me.
-1.2|I did not like it.
-1.4|I expected much more.
-1.6|I want my money back.
-1.6|It stopped working after a week.
-1.6|It broke after two days.
-1.5|I returned it the next day.
-1.8|Do not buy this {x}.
-1.8|Save your money.
-2.0|Stay away from this {x}.
-2.0|What a letdown.
-2.2|I regret buying it.
-2.4|A complete waste of time.
-2.6|I hate this {x}.
-2.8|Worst {x} ever.
-3.0|I have never been so disappointed in my life.
-2.4|Never again.
-2.0|I fell asleep halfway through.
-1.8|They never answered my emails.
-2.2|I walked out after twenty minutes.
-1.4|There was nothing good about it.
-1.5|I can't recommend it to anyone.
-1.3|If only it were half as good as they say.
""".strip().splitlines())]

FIRST = split("Anna, Ben, Carla, David, Emma, Frank, Grace, Henry, Ivan, Julia, Kevin, Laura, Maria, Nina, Oscar, Paul, Rosa, Sam, Tina, "
              "Victor, Wendy, Yuki, Zoe, Ahmed, Priya, Chen, Fatima, Lukas, Sofia, Mateo, Olga, Hiro, Amir, Elena, Noah, Liam, Aisha, "
              "Bruno, Clara, Diego, Erik, Freya, Hugo, Ingrid, Jonas, Karim, Leila, Marco, Nora, Omar, Peter, Rachel, Sarah, Tom, Uma")
LAST = split("Smith, Jones, Brown, Miller, Davis, Garcia, Wilson, Moore, Taylor, Lee, White, Harris, Clark, Lewis, Young, King, Wright, "
             "Lopez, Hill, Scott, Green, Adams, Baker, Nelson, Carter, Mitchell, Perez, Roberts, Turner, Parker, Evans, Collins, Novak, "
             "Kim, Patel, Singh, Wang, Tanaka, Sato, Ivanov, Kovacs, Rossi, Weber, Fischer, Dubois, Silva, Santos, Haddad, Okafor, Mensah")
PLACES = split("Paris, London, Berlin, Madrid, Rome, Tokyo, Boston, Chicago, Denver, Seattle, Austin, Dallas, Miami, Toronto, Lisbon, Vienna, "
               "Prague, Oslo, Dublin, Zurich, Cairo, Lagos, Nairobi, Mumbai, Delhi, Seoul, Beijing, Sydney, Lima, Bogota, Athens, Warsaw, "
               "Munich, Hamburg, Lyon, Milan, Porto, Bergen, Kyoto, Osaka, Manila, Hanoi, Jakarta, Atlanta, Phoenix, Portland, Houston, "
               "New York, San Diego, Los Angeles, Cape Town, Hong Kong, Mexico City, Tel Aviv, Buenos Aires")
COUNTRIES = split("France, Spain, Italy, Japan, Canada, Brazil, Kenya, India, Norway, Greece, Peru, Egypt, Poland, Mexico, Ireland, Germany")
PRODUCTS = split("laptop, phone, camera, blender, toaster, backpack, jacket, desk lamp, office chair, keyboard, monitor, printer, headphones, "
                 "coffee machine, tent, bicycle, watch, vacuum cleaner, rice cooker, tablet, speaker, router, drill, mattress, running shoes, "
                 "water bottle, guitar, microphone, heater, fan, sofa, bookshelf, sunglasses, smart TV, electric kettle, gaming mouse")
COMPANIES = split("Acme, Globex, Initech, Umbra, Northwind, Contoso, Fabrikam, Brightside, Blue Ridge, Silverline, Oakwood, Redstone, Pinecrest, "
                  "Sunfield, Harbor, Ironworks, Lakeview, Maplewood, Novatek, Quantix, Starlight, Vertex, Zenith, Cloudberry, Riverbend")
COMPANY_ENDS = ["Inc", "Ltd", "GmbH", "Corp", "Group", "Labs", "Foods", "Systems", "Bank", "Partners", ""]
MONTHS = split("January, February, March, April, May, June, July, August, September, October, November, December")
DAYS = split("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
