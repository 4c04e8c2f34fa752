/** Which cases this run plays: `--sample` of run.mjs (docs/interop.md). */

/** A seed, the name of a fixed sample, or '' for everything. */
export const SAMPLE = process.env.ROCE_SAMPLE ?? '';

/** `gate` and `control` are the same in each run, and no verdict of theirs depends on how busy the machine is. */
export const isFixedSample = SAMPLE === 'gate' || SAMPLE === 'control';
