import tab from '@bomb.sh/tab/commander';
import type { Command } from 'commander';

/**
 * `holdfast completion bash|zsh|fish|powershell` prints a script for the shell's own start-up file; the script asks the hidden
 * `holdfast complete` for words. To be called last: it looks at the commands that are there.
 */
export const addCompletion = (program: Command): void => void tab(program, { completionCommandName: 'completion' });
