export function patienceOf(env: { ROCE_PATIENCE?: string }): number;
export const PATIENCE: number;
