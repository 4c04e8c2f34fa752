/** Connections while a capture is read: one for each direction, until two are joined; numbered when it is settled. */
import type { Message, Pairing } from '../facts.ts';
import type { ConnectionState, Direction } from '../track/direction.ts';
import type { UnnumberedMessage } from '../track/messages.ts';

/** Messages that wait for their connection to be paired; then it is settled without. */
const MAX_PENDING_MESSAGES = 1000;
/** The same of all connections together. */
const MAX_ALL_PENDING = 50_000;

/** Gives connections and messages their numbers; a number never changes. */
export class OpenConnections {
  readonly #states: ConnectionState[] = [];
  readonly #findPartner: (direction: Direction) => void;
  readonly #onMessage: (direction: Direction, message: Message) => void;
  /** Messages that wait, of all connections. */
  #waiting = 0;
  #lastId = 0;

  /**
   * @param findPartner the last chance of a direction before its connection is settled
   * @param onMessage called for each message, in the order of its connection
   */
  constructor(
    findPartner: (direction: Direction) => void,
    onMessage: (direction: Direction, message: Message) => void,
  ) {
    this.#findPartner = findPartner;
    this.#onMessage = onMessage;
  }

  get all(): readonly ConnectionState[] {
    return this.#states;
  }

  /** Those that have a number, in the order of it. */
  get settled(): ConnectionState[] {
    return this.#states.filter(({ id }) => id > 0).sort((x, y) => x.id - y.id);
  }

  /** A direction has begun. */
  open(direction: Direction): void {
    direction.connection = {
      id: 0,
      pairing: 'unpaired',
      pairingReason:
        'the capture shows one direction only, or no evidence of which directions belong together',
      presumed: false,
      presumedFits: 0,
      first: direction,
      second: undefined,
      nextMessage: 1,
      pendingMessages: [],
    };
    this.#states.push(direction.connection);
  }

  /** Two directions are one connection. */
  join(direction: Direction, other: Direction, pairing: Pairing, reason: string): void {
    const [first, second] =
      direction.span.firstFrame <= other.span.firstFrame ? [direction, other] : [other, direction];
    // Two that were handed out under different numbers stay apart.
    if (first.connection.id > 0 && second.connection.id > 0) return;
    const connection =
      first.connection.id > 0 || second.connection.id === 0 ? first.connection : second.connection;
    const gone = connection === first.connection ? second.connection : first.connection;
    connection.first = first;
    connection.second = second;
    connection.pairing = pairing;
    connection.pairingReason = reason;
    connection.pendingMessages.push(...gone.pendingMessages);
    this.#states.splice(this.#states.indexOf(gone), 1);
    const transport = first.transport ?? second.transport;
    for (const one of [first, second]) {
      const opposite = one === first ? second : first;
      one.connection = connection;
      one.peer = opposite;
      one.search.sourceQp = opposite.key.destQp;
      one.transport = transport;
      if (one.requester !== undefined) one.requester.hasAnswers = true;
    }
    this.settle(connection);
  }

  /** From here on it has a number, and its messages are handed out. */
  settle(connection: ConnectionState): void {
    if (connection.id === 0) connection.id = ++this.#lastId;
    const { pendingMessages } = connection;
    connection.pendingMessages = [];
    this.#waiting -= pendingMessages.length;
    for (const { direction, message } of pendingMessages) this.#emit(direction, message);
  }

  /** A message of this direction's requester is at its end. */
  messageEnded(direction: Direction, message: UnnumberedMessage): void {
    const { connection } = direction;
    if (connection.id > 0) {
      this.#emit(direction, message);
      return;
    }
    connection.pendingMessages.push({ direction, message });
    const all = ++this.#waiting;
    if (connection.pendingMessages.length < MAX_PENDING_MESSAGES && all < MAX_ALL_PENDING) return;
    if (connection.second === undefined) this.#findPartner(connection.first);
    if (direction.connection.id === 0) this.settle(direction.connection);
  }

  #emit(direction: Direction, made: UnnumberedMessage): void {
    const { connection } = direction;
    const message: Message = {
      id: connection.nextMessage++,
      connection: connection.id,
      from: direction.from,
      ...made,
    };
    direction.record.latencies.add(message);
    this.#onMessage(direction, message);
  }
}
