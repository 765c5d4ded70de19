// Templates: tasks with a small table each, whose AI columns fill as soon as it opens. The reviews are real ones; the other
// texts were written for this project. Tables are data and English in every language, as are the labels that the built-in
// demo model knows.

import reviews from "@examples/reviews.csv?raw";
import { readCsv } from "../core/csv";
import { t } from "../text";

/** A sheet to begin with. */
export interface Template {
  name: string;
  /** What it does, in one line. */
  about: string;
  /** Whether it is beyond the built-in demo model, which knows labels and ratings. */
  isBeyondDemo: boolean;
  rows: string[][];
  /** What its card shows as the first answers, written by hand. */
  sample: string[];
  widths: number[];
}

/** Real reviews with what their raters said: `examples/README.md` names the source. */
const REVIEWS = readCsv(reviews).slice(1).map(([, review = "", raters = ""]) => ({ review, raters }));

const TICKETS = [
  "I was charged twice for my order last month.", "The parcel shows delivered, but nothing came.",
  "How do I change the address of my account?", "The app closes when I open the camera.",
  "Please cancel my subscription at the end of the year.", "My invoice has the wrong company name.",
  "The tracking page has said 'in transit' for ten days.", "I cannot log in since the update.",
  "Can I get a refund for the unused weeks?", "The delivery came a day early, thank you!",
  "Password reset mails never arrive.", "The courier left the box in the rain.",
];

const LEADS = [
  "Head of data at a bank: wants a price for 200 seats by Friday.", "Student: asks whether there is a free licence.",
  "Retailer with 40 shops: had a demo, asks for a contract.", "Someone asks which of our posts is the newest.",
  "Hospital IT: compares three products, decides next quarter.", "Recruiter: offers us candidates.",
  "Start-up founder: signed up yesterday, invited six colleagues.", "University: would like a talk for its students.",
];

const INVOICES = [
  "Invoice 2041 of Nordlicht GmbH, 14 March 2026. 3 desks at 410.00, delivery 35.00. Total due: EUR 1,265.00",
  "RIVERA & SONS - Inv. no. RS-118 - consulting, 12 h x 95.00 - amount payable USD 1,140.00 - 2 May 2026",
  "Papeterie Lune, facture F-77, le 9 avril 2026, cartouches d'encre, total TTC 88,40 EUR",
  "Bill 5530, Acme Cloud, period June 2026, storage 12.50, traffic 7.25, sum USD 19.75",
  "Statement from Kato Print, ref KP/26/014, 500 flyers, JPY 24,000 incl. tax, 21 Jan 2026",
];

const PHRASES = [
  "Where can I collect my parcel?", "Your order has been shipped.", "Please restart the app and try again.",
  "We are sorry for the delay.", "The invoice is attached.", "Your password expires in three days.",
];

const THREADS = [
  "Customer: the export stops at 40 %. Agent: which version? Customer: 3.2 on Windows. Agent: fixed in 3.3, please update. " +
    "Customer: it works now, thanks.",
  "Customer: two charges of 29 euros in May. Agent: one is the yearly plan, one a second seat. Customer: I never added a seat. " +
    "Agent: refunded, three to five days.",
  "Customer: parcel marked delivered, nothing here. Agent: the courier left it with a neighbour in number 12. Customer: found it.",
  "Customer: can I move my data to the Frankfurt region? Agent: yes, it takes a night, during which reports are read-only. " +
    "Customer: please do it on Sunday.",
];

const NAMES = [
  "MUELLER, ANNA", "dr. john  o'neill", "Garcia Lopez Maria", "li wei (Mr)", "Smith,J.", "prof. Aiko TANAKA", "jean-luc  PICARD",
  "van der Berg, Tom",
];

/** Rows under a header, with a formula for each further column in the first of them. */
function filled(header: string[], texts: readonly string[], ...formulas: string[]): string[][] {
  return [header, ...texts.map((text, i) => [text, ...(i === 0 ? formulas : [])])];
}

const called = ([name, about]: readonly [string, string]) => ({ name, about });

/** Every template, in the order of the gallery: the first is one that a small model does well. */
export const TEMPLATES: readonly Template[] = [
  {
    ...called(t.templates.invoices),
    isBeyondDemo: true,
    sample: ["2041", "RS-118"],
    widths: [520, 150, 150],
    rows: filled(
      ["Invoice", "Number", "Total"], INVOICES,
      `=AI.EXTRACT(A2:A${INVOICES.length + 1}, "the invoice number")`,
      `=AI.EXTRACT(A2:A${INVOICES.length + 1}, "the total amount with its currency")`,
    ),
  },
  {
    ...called(t.templates.reviews),
    isBeyondDemo: false,
    sample: ["positive", "positive"],
    widths: [430, 110, 90, 110, 200],
    rows: [
      ["Review", "Class", "Rating", "Raters said", "Negative by the model"],
      ...REVIEWS.map(({ review, raters }, i) => [
        review,
        i === 0 ? `=AI.CLASSIFY(A2:A${REVIEWS.length + 1}, "positive, negative")` : "",
        i === 0 ? `=AI.RATE(A2:A${REVIEWS.length + 1})` : "",
        raters,
        i === 0 ? `=COUNTIF(B2:B${REVIEWS.length + 1}, "negative")/${REVIEWS.length}` : "",
      ]),
    ],
  },
  {
    ...called(t.templates.tickets),
    isBeyondDemo: false,
    sample: ["billing", "delivery"],
    widths: [400, 130, 110, 120],
    rows: [
      ["Ticket", "Topic", "Urgency", "Topics"],
      ...TICKETS.map((ticket, i) => [
        ticket,
        `=AI.CLASSIFY(A${i + 2}, $D$2:$D$5)`,
        `=AI.RATE(A${i + 2}, "how urgent it is")`,
        ["billing", "delivery", "account", "bug"][i] ?? "",
      ]),
    ],
  },
  {
    ...called(t.templates.leads),
    isBeyondDemo: false,
    sample: ["5", "1"],
    widths: [430, 90, 110],
    rows: filled(
      ["Lead", "Score", "Call"], LEADS,
      `=AI.RATE(A2:A${LEADS.length + 1}, "how likely they are to buy soon")`, `=AI.CLASSIFY(A2:A${LEADS.length + 1}, "call, wait")`,
    ),
  },
  {
    ...called(t.templates.translations),
    isBeyondDemo: true,
    sample: ["Wo kann ich mein Paket abholen?", "Ihre Bestellung wurde versandt."],
    widths: [300, 260, 260],
    rows: filled(
      ["English", "German", "French"], PHRASES,
      `=AI.TRANSLATE(A2:A${PHRASES.length + 1}, "German")`, `=AI.TRANSLATE(A2:A${PHRASES.length + 1}, "French")`,
    ),
  },
  {
    ...called(t.templates.summaries),
    isBeyondDemo: true,
    sample: ["Export fixed by updating to 3.3.", "Double charge refunded."],
    widths: [520, 360, 110],
    rows: filled(
      ["Conversation", "Summary", "Solved"], THREADS,
      `=AI.SUMMARIZE(A2:A${THREADS.length + 1}, "one sentence")`, `=AI.CLASSIFY(A2:A${THREADS.length + 1}, "solved, open")`,
    ),
  },
  {
    ...called(t.templates.names),
    isBeyondDemo: true,
    sample: ["Anna Mueller", "John O'Neill"],
    widths: [240, 240],
    rows: filled(
      ["As typed", "Name"], NAMES, `=AI.FORMAT(A2:A${NAMES.length + 1}, "given name, then family name, without titles")`,
    ),
  },
];
