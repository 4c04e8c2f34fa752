/** What a check of `roce doctor` comes to. */
export interface Check {
  check: string;
  /** `warn`: works, but not as well as it could, or could not be told. */
  verdict: 'ok' | 'warn' | 'fail';
  /** What was found and, unless all is well, what to do. */
  text: string;
}

export const ok = (check: string, text: string): Check => ({ check, verdict: 'ok', text });
export const warn = (check: string, text: string): Check => ({ check, verdict: 'warn', text });
export const fail = (check: string, text: string): Check => ({ check, verdict: 'fail', text });
