/**
 * The factor that `ROCE_PATIENCE` puts on deadlines and budgets (docs/testing.md): 1 if the variable is absent or empty.
 * @throws if the value is no number above 0
 */
export function patienceOf({ ROCE_PATIENCE: value = '' }) {
  if (value === '') return 1;
  const factor = Number(value);
  if (factor > 0 && factor < Infinity) return factor;
  throw new Error(`ROCE_PATIENCE=${value}: expected a number above 0, for example 3`);
}

/** The factor of this process. */
export const PATIENCE = patienceOf(process.env);
