// What a sheet has cost: cells, tokens, and where answers came from.

/** The sums of a sheet. */
export interface Usage {
  /** Cells asked of the server, and how they ended. */
  asked: number;
  answered: number;
  failed: number;
  cancelled: number;
  /** Answers out of the server's result cache, and those computed once for several cells. */
  fromCache: number;
  deduplicated: number;
  /** Tokens of prompts, those of them read from memory on the server, and tokens of answers. */
  promptTokens: number;
  cachedTokens: number;
  outputTokens: number;
  requests: number;
  /** Milliseconds from sending to the end, over all requests, and of the last one. */
  totalMs: number;
  lastMs: number;
}

/** Nothing yet. */
export function noUsage(): Usage {
  return {
    asked: 0, answered: 0, failed: 0, cancelled: 0, fromCache: 0, deduplicated: 0,
    promptTokens: 0, cachedTokens: 0, outputTokens: 0, requests: 0, totalMs: 0, lastMs: 0,
  };
}

/** The end of a request as the server sends it; what is missing counts as nought. */
export interface ServerUsage {
  prompt_tokens?: number;
  completion_tokens?: number;
  prompt_tokens_details?: { cached_tokens?: number };
  rows_from_cache?: number;
  rows_deduplicated?: number;
}

/** Adds a finished request. */
export function add(usage: Usage, server: ServerUsage): void {
  usage.promptTokens += server.prompt_tokens ?? 0;
  usage.outputTokens += server.completion_tokens ?? 0;
  usage.cachedTokens += server.prompt_tokens_details?.cached_tokens ?? 0;
  usage.fromCache += server.rows_from_cache ?? 0;
  usage.deduplicated += server.rows_deduplicated ?? 0;
}
