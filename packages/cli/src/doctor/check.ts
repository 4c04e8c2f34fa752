/** The result of a check of `roce doctor`. */
export interface Check {
  check: string;
  /** `warn`: works, but could work better, or could not be checked. */
  verdict: 'ok' | 'warn' | 'fail';
  /** The result and, unless `ok`, the remedy. */
  text: string;
}

export const ok = (check: string, text: string): Check => ({ check, verdict: 'ok', text });
export const warn = (check: string, text: string): Check => ({ check, verdict: 'warn', text });
export const fail = (check: string, text: string): Check => ({ check, verdict: 'fail', text });
