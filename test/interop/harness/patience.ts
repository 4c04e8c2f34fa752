/** How much longer than on a quiet machine a guest may take: `ROCE_PATIENCE=3` (docs/testing.md). */
export const PATIENCE = Number(process.env.ROCE_PATIENCE) || 1;
