/** The record of what a context owns: kept by the rows of the commands that create and destroy it. */
import type { CmEvent } from '@node-roce/cm';
import { type CommandName, DESTROYERS, KINDS, type Kind, rowOf } from './commands.ts';

/** One object: the arguments of the command that destroys it, and the number of its queue pair, if it has one. */
export interface OwnedObject {
  readonly args: readonly unknown[];
  readonly qpn: number | undefined;
}

/** The engine's number of an object, or of a membership the numbers of queue pair and group. */
type Key = number | string;
const keyOf = (args: readonly unknown[]): Key => (args.length === 1 ? (args[0] as number) : `${args}`);

/** The arguments that name a new object to the command that destroys it. */
function namesOf(kind: Kind, args: readonly unknown[], result: unknown): readonly unknown[] {
  if (kind === 'membership') return args;
  if (typeof result === 'number') return [result];
  const { qpn, handle } = result as { qpn?: number; handle?: number };
  return [handle ?? qpn];
}

/** Objects of one context, or of an engine, by kind. */
export class Owned {
  readonly #objects = new Map<Kind, Map<Key, OwnedObject>>(KINDS.map((kind) => [kind, new Map()]));

  #of(kind: Kind): Map<Key, OwnedObject> {
    return this.#objects.get(kind)!;
  }

  has(kind: Kind, number: number): boolean {
    return this.#of(kind).has(number);
  }

  add(kind: Kind, args: readonly unknown[], qpn?: number): OwnedObject {
    const object = { args, qpn };
    this.#of(kind).set(keyOf(args), object);
    return object;
  }

  /** Records a command that was carried out. Returns the object that it created. */
  created(name: CommandName, args: readonly unknown[], result: unknown): OwnedObject | undefined {
    const { creates } = rowOf(name);
    if (creates === undefined) return undefined;
    const { qpn } = Object(result) as { qpn?: number };
    return this.add(creates, namesOf(creates, args, result), qpn);
  }

  /** Records a command that was carried out. Returns the object that it destroyed. */
  destroyed(name: CommandName, args: readonly unknown[]): OwnedObject | undefined {
    const { destroys } = rowOf(name);
    if (destroys === undefined) return undefined;
    const [objects, key] = [this.#of(destroys), keyOf(args)];
    const object = objects.get(key);
    objects.delete(key);
    return object;
  }

  /** Whether a queue pair is among them, or an opening of it. */
  hasQueuePair(qpn: number): boolean {
    if (this.has('queuePair', qpn)) return true;
    for (const target of this.#of('xrcTarget').values()) if (target.qpn === qpn) return true;
    return false;
  }

  /** Whether an event of the connection manager is about one of them; a request is then one of them, too. */
  takesEvent(event: CmEvent): boolean {
    if (event.type !== 'request' && event.type !== 'datagram-request')
      return this.has('connection', event.id);
    if (!this.has('listener', event.listener)) return false;
    this.add('connection', [event.id]);
    return true;
  }

  /** The commands that destroy all of them, in an order that is possible; what is added meanwhile is among them. */
  *destruction(): Iterable<[CommandName, readonly unknown[]]> {
    for (const kind of KINDS) for (const { args } of this.#of(kind).values()) yield [DESTROYERS[kind], args];
  }
}
