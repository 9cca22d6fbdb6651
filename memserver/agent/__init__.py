"""The turn, the step loop and the prompt; and who serves which agent."""
