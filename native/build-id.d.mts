export function buildId(): string;
export function buildModule(): string;
