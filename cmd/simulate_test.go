package cmd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"orrery.dev/client"
)

func TestPartsThatLostTheirLeadStartAgain(t *testing.T) {
	other := errors.New("other")
	runs := 0
	err := leading(func(context.Context) error {
		if runs++; runs < 3 {
			return fmt.Errorf("scheduler: %w", client.ErrLostLead)
		}
		return other
	})(context.Background())
	if err != other || runs != 3 {
		t.Errorf("%d runs, then %v", runs, err)
	}
}
