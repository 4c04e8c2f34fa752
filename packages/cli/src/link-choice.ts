/** The options --link and --no-probes of commands that open a device: what was asked for is opened, or is an error. */
import type { SocketLinkKind } from '@node-roce/link';
import type { OpenOptions } from '@node-roce/verbs-api';

/** The kinds by name. */
export type LinkChoice = SocketLinkKind;

/** Options of `openDevice`. A program that names xdp wants the reason where it is not possible, and not the UDP link. */
export const openOptions = (link: LinkChoice): Pick<OpenOptions, 'xdpMode'> & { link: LinkChoice } =>
  link === 'xdp' ? { link, xdpMode: 'any' } : { link };

/** @param probes false with --no-probes */
export const recoveryOptions = (probes: boolean): Pick<OpenOptions, 'recovery'> =>
  probes ? {} : { recovery: { probes } };
