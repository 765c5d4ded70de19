// Templates: tasks with a small table each, whose AI columns fill as soon as it opens. The reviews are real ones; the other
// texts were written for this project. Tables are data and English in every language, as are the labels that the built-in
// demo model knows. They are what somebody sees of the models first, so those of the first rows of the gallery are plain
// texts that the model of `./run` answers rightly; how good it is in general is measured elsewhere (`docs/QUALITY.md`).

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
  /** Whether many of its answers are wrong from a model as small as the one that `./run` serves. */
  wantsLarger: boolean;
  rows: string[][];
  /** What its card shows as the first answers, written by hand. */
  sample: string[];
  widths: number[];
}

/** Real reviews with what their raters said: `examples/README.md` names the source. */
const REVIEWS = readCsv(reviews).slice(1).map(([, review = "", raters = ""]) => ({ review, raters }));

/** Both small models sort all of these rightly. */
const TICKETS = [
  "The parcel shows delivered, but nothing came.", "How do I change the address of my account?",
  "The app crashes when I open the camera.", "My package was lost by the courier.", "I forgot the password of my account.",
  "The page freezes when I scroll.", "The box was damaged when it was delivered.", "Please delete my account and my data.",
  "The map does not load on my phone.", "When will my parcel be delivered?", "How do I add a user to our account?",
  "The app shows an error when I save.",
];

const TOPICS = ["delivery", "account", "bug"];

const LEADS = [
  "Head of data at a bank: wants a price for 200 seats by Friday.", "Student: asks whether there is a free licence.",
  "Retailer with 40 shops: had a demo, asks for a contract.", "Someone asks which of our posts is the newest.",
  "Hospital IT: compares three products, decides next quarter.", "Recruiter: offers us candidates.",
  "Start-up founder: signed up yesterday, invited six colleagues.", "University: would like a talk for its students.",
];

const INVOICES = [
  "Invoice 2041 from Nordlicht GmbH, 14 March 2026. 3 desks at 410.00, delivery 35.00. Total due: EUR 1,265.00",
  "RIVERA & SONS - Inv. no. RS-118 - consulting, 12 h x 95.00 - amount payable USD 1,140.00 - 2 May 2026",
  "Papeterie Lune, invoice no. F-77, 9 April 2026, ink cartridges, total incl. VAT 88.40 EUR",
  "Acme Cloud, 30 June 2026, invoice AC-5530: storage 12.50, traffic 7.25, sum USD 19.75",
  "Kato Print, 21 Jan 2026, invoice no. KP-26-014, flyers, JPY 24,000 incl. tax",
  "Invoice number 7731, dated 8 May 2026: garden work, two days, GBP 480.00. Due in 14 days.",
];

/** Names, hosts and numbers that nobody has. */
const MESSAGES = [
  "My order has not come yet. Please write to anna.keller@example.com or call 030 5550 1180. Anna Keller",
  "Could somebody ring me back after five? +1 (212) 555-0147, Tom Reyes, tom@reyes.example",
  "We would like a quote for 40 chairs. Best wishes, Maria Sousa, maria.sousa@casa.example, tel. 21 555 0199",
  "The meeting suits us. You can reach me at +44 20 7946 0991 (office) or j.okafor@harbour.example. J. Okafor",
  "li.wei@papermill.example: please take my old number off the list, the new one is 010-5550-2288.",
  "P. Novak here, 555 010 4477. The address p.novak@example.org stays the same.",
];

const DATES = [
  "3 Aug 2026", "Sept 5th, 2026", "2026/7/9", "31.12.2025", "the 4th of May 2026", "Monday, 12 October 2026", "2026-2-1", "July 14 2026",
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

/** Rows under a header, with a formula for each further column in the first of them. */
function filled(header: string[], texts: readonly string[], ...formulas: string[]): string[][] {
  return [header, ...texts.map((text, i) => [text, ...(i === 0 ? formulas : [])])];
}

const called = ([name, about]: readonly [string, string]) => ({ name, about });

/** Every template, in the order of the gallery: those that a small model does well come first. */
export const TEMPLATES: readonly Template[] = [
  {
    ...called(t.templates.invoices),
    isBeyondDemo: true,
    wantsLarger: false,
    sample: ["2041", "RS-118"],
    widths: [520, 110, 130, 130],
    rows: filled(
      ["Invoice", "Number", "Date", "Total"], INVOICES,
      `=AI.EXTRACT(A2:A${INVOICES.length + 1}, "the invoice number")`, `=AI.EXTRACT(A2:A${INVOICES.length + 1}, "the date")`,
      `=AI.EXTRACT(A2:A${INVOICES.length + 1}, "the total amount")`,
    ),
  },
  {
    ...called(t.templates.tickets),
    isBeyondDemo: false,
    wantsLarger: false,
    sample: ["delivery", "account"],
    widths: [400, 130, 120, 90],
    rows: [
      ["Ticket", "Topic", "Topics", "Tickets"],
      ...TICKETS.map((ticket, i) => [
        ticket,
        `=AI.CLASSIFY(A${i + 2}, $C$2:$C$4)`,
        ...(TOPICS[i] ? [TOPICS[i], `=COUNTIF($B$2:$B$${TICKETS.length + 1}, C${i + 2})`] : []),
      ]),
    ],
  },
  {
    ...called(t.templates.contacts),
    isBeyondDemo: true,
    wantsLarger: false,
    sample: ["anna.keller@example.com", "tom@reyes.example"],
    widths: [520, 210, 160],
    rows: filled(
      ["Message", "Email", "Phone"], MESSAGES,
      `=AI.EXTRACT(A2:A${MESSAGES.length + 1}, "the email address")`, `=AI.EXTRACT(A2:A${MESSAGES.length + 1}, "the phone number")`,
    ),
  },
  {
    ...called(t.templates.dates),
    isBeyondDemo: true,
    wantsLarger: false,
    sample: ["2026-08-03", "2026-09-05"],
    widths: [240, 130],
    rows: filled(["As typed", "Date"], DATES, `=AI.FORMAT(A2:A${DATES.length + 1}, "YYYY-MM-DD")`),
  },
  {
    ...called(t.templates.reviews),
    isBeyondDemo: false,
    wantsLarger: false,
    sample: ["positive", "positive"],
    widths: [430, 110, 110, 200],
    rows: [
      ["Review", "Class", "Raters said", "As the raters said"],
      ...REVIEWS.map(({ review, raters }, i) => [
        review,
        // In this order the model of `./run` is right more often than in the other.
        i === 0 ? `=AI.CLASSIFY(A2:A${REVIEWS.length + 1}, "negative, positive")` : "",
        raters,
        i === 0 ? `=TEXT(SUMPRODUCT(--(B2:B${REVIEWS.length + 1}=C2:C${REVIEWS.length + 1}))/${REVIEWS.length}, "0 %")` : "",
      ]),
    ],
  },
  {
    ...called(t.templates.leads),
    isBeyondDemo: false,
    wantsLarger: true,
    sample: ["5", "1"],
    widths: [430, 90, 110],
    rows: filled(
      ["Lead", "Score", "Call"], LEADS,
      `=AI.RATE(A2:A${LEADS.length + 1}, "how likely they are to buy soon")`, `=AI.CLASSIFY(A2:A${LEADS.length + 1}, "call, wait")`,
    ),
  },
  {
    ...called(t.templates.summaries),
    isBeyondDemo: true,
    wantsLarger: true,
    sample: ["Export fixed by updating to 3.3.", "Double charge refunded."],
    widths: [520, 360, 110],
    rows: filled(
      ["Conversation", "Summary", "Solved"], THREADS,
      `=AI.SUMMARIZE(A2:A${THREADS.length + 1}, "one sentence")`, `=AI.CLASSIFY(A2:A${THREADS.length + 1}, "solved, open")`,
    ),
  },
  {
    ...called(t.templates.translations),
    isBeyondDemo: true,
    wantsLarger: true,
    sample: ["Wo kann ich mein Paket abholen?", "Ihre Bestellung wurde versandt."],
    widths: [300, 260, 260],
    rows: filled(
      ["English", "German", "French"], PHRASES,
      `=AI.TRANSLATE(A2:A${PHRASES.length + 1}, "German")`, `=AI.TRANSLATE(A2:A${PHRASES.length + 1}, "French")`,
    ),
  },
];
