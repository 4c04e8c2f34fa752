export const EXEC_PORT: number;
export function umCommand(guest: {
  kernel: string;
  image: string;
  name: string;
  directory: string;
  cards: { device: string; mtu: number; mac: string }[];
  words: string[];
}): { command: string; args: string[]; env: NodeJS.ProcessEnv };
export function isTracingRefused(text: string): boolean;
