// The part of Apps Script that this project uses, as it calls it: what a test stands in for.

/** A reply of `UrlFetchApp`. */
export interface HttpReply {
  getResponseCode(): number;
  getContentText(): string;
  getHeaders(): Record<string, string | string[]>;
}

/** A request of `UrlFetchApp.fetchAll`. */
export interface HttpRequest {
  url: string;
  method: "get" | "post" | "delete";
  headers: Record<string, string>;
  contentType?: string;
  payload?: string;
  /** Statuses above 399 are replies, not exceptions. */
  muteHttpExceptions: true;
}

/** One cache of `CacheService`: 100 kB a value, six hours at most, and free to forget anything sooner. */
export interface Cache {
  get(key: string): string | null;
  put(key: string, value: string, seconds: number): void;
  remove(key: string): void;
}

/** One store of `PropertiesService`. */
export interface Properties {
  getProperty(key: string): string | null;
  setProperty(key: string, value: string): unknown;
  deleteProperty(key: string): unknown;
}

/** The part of Apps Script that a custom function uses. */
export interface ScriptHost {
  /** Milliseconds since 1970. */
  now(): number;
  sleep(milliseconds: number): void;
  fetchAll(requests: HttpRequest[]): HttpReply[];
  cache: Cache;
  properties: Properties;
  /** A short name for a text: equal for equal texts, different for others. */
  digest(text: string): string;
  /** A date as this spreadsheet writes it. */
  dateText(date: Date): string;
}
